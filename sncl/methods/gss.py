r"""GSS (greedy): experience replay from a memory whose samples pull the network in directions as different as possible.

    score(row) = 1 + max over c of cos(g_row, g_c)

g is the gradient of a sample's loss and c runs over a few samples drawn from the memory; the batch as a whole is scored
by its mean gradient. Low scores are rare directions. What they decide is :class:`sncl.memory.diverse.GradientDiverse`.

Reference: Aljundi et al., *Gradient based sample selection for online continual learning*, NeurIPS 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.memory.diverse import GradientDiverse
from sncl.methods.gradients import per_sample_gradients
from sncl.methods.method import Method, Outcome
from sncl.methods.terms import joined, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, Inputs, inputs, pieces

ALONE = 0.1  # the score of samples that come while there is nothing to compare them with
ROWS_AT_ONCE = 64  # gradients of single samples are as large as the network, each
SMALLEST = 1e-6  # scores are weights in a draw, so none is zero


def scores(net: Tapped, now: Fields, drawn: Fields) -> tuple[Tensor, Tensor]:
    """The score of every sample [rows] and of the batch as a whole []."""
    theirs = _gradients(net, inputs(drawn), drawn["y"])  # one [compared, parameters] for each parameter of the network
    products, lengths, sums = [], [], [torch.zeros_like(part[0]) for part in theirs]
    for x, y in zip(pieces(inputs(now), ROWS_AT_ONCE), now["y"].split(ROWS_AT_ONCE), strict=True):
        ours = _gradients(net, x, y)
        products.append(_products(ours, theirs))
        lengths.append(_lengths(ours))
        sums = [total + part.sum(0) for total, part in zip(sums, ours, strict=True)]
    cosines = torch.cat(products) / torch.cat(lengths)[:, None] / _lengths(theirs)  # [rows, compared]
    whole = [total[None] for total in sums]  # the mean gradient has the direction of the sum
    cosine = _products(whole, theirs)[0] / _lengths(whole) / _lengths(theirs)  # [compared]
    return (1 + cosines.amax(1)).clamp(min=SMALLEST), (1 + cosine.amax()).clamp(min=SMALLEST)


def _gradients(net: Tapped, x: Inputs, y: Tensor) -> list[Tensor]:
    return [value.flatten(1) for value in per_sample_gradients(net, x, y).values()]


def _products(ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
    """Inner products of every row of the one with every row of the other."""
    return torch.stack([first @ second.T for first, second in zip(ours, theirs, strict=True)]).sum(0)


def _lengths(gradients: list[Tensor]) -> Tensor:
    """The norm of each row; one of zeros counts as orthogonal to all others. [rows]"""
    parts = [torch.linalg.vector_norm(part, dim=1) for part in gradients]
    length: Tensor = torch.linalg.vector_norm(torch.stack(parts), dim=0)
    return length.clamp(min=1e-12)


class GSS(Method):
    """loss = CE over the batch and a replayed batch, in a single mean; samples are scored against ``compared`` others.

    Scores are those of the weights the batch arrives at, and of each image as it was augmented; the code the
    published numbers come from scores behind the update. Gradients are taken in evaluation mode, and without weights: a
    score compares directions.
    """

    takes_weights = True
    capturable = False
    draws = 2

    def __init__(self, compared: int) -> None:
        super().__init__()
        if compared < 1:
            raise SnclError(f"`compared` is how many samples each is compared with: at least 1, not {compared}")
        self.compared = compared
        self.admission = GradientDiverse()

    def replayed_rows(self, draw: int, usual: int) -> int:
        return usual if draw == 0 else self.compared

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x, labels = joined(now, past[:1])
        losses = {"labels": label_loss(net(x).logits, labels)}
        if past:
            score, whole = scores(net, now, past[1])
        else:
            score, whole = (losses["labels"].new_full(shape, ALONE) for shape in (now["y"].shape, ()))
        return Outcome(losses, remember={"score": score, "batch_score": whole.expand_as(score)})

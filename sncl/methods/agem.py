r"""A-GEM: learn the batch along its gradient, less the part of it that would raise the loss on the memory.

    g~ = g - min(g.r, 0) / (r.r) r

g is the gradient on the batch and r, the reference, that on one replayed batch. Nothing changes where they agree, and
otherwise g~ is the vector nearest to g that does not point against r.

Reference: Chaudhry et al., *Efficient Lifelong Learning with A-GEM*, ICLR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.memory.admission import PerTask
from sncl.methods.gradients import gradient_of, set_gradient_vector
from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """The nearest vector whose inner product with the reference is not negative. [parameters]"""
    against = torch.dot(gradient, reference).clamp(max=0)
    return gradient - against / torch.dot(reference, reference).clamp(min=torch.finfo(gradient.dtype).tiny) * reference


class Projected(Method):
    """The step both forms of A-GEM make; they differ in what is remembered.

    Batch and replay run as two passes even where one would do: each loss is differentiated by itself, and behind a
    joined pass both would go back through all samples.
    """

    takes_weights = True
    draws = 1
    one_backward = False

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        losses = {"labels": label_loss(net(inputs(now)).logits, now)}
        if past:
            losses["past_labels"] = label_loss(net(inputs(past[0])).logits, past[0])
        return Outcome(losses)

    def backward(self, net: Tapped, losses: Fields) -> None:
        if "past_labels" not in losses:
            super().backward(net, losses)
            return
        gradient, reference = gradient_of(net, losses["labels"]), gradient_of(net, losses["past_labels"])
        set_gradient_vector(net, project(gradient, reference))


class AGEM(Projected):
    """A-GEM: the reference comes from past tasks alone, each of which has one of ``parts`` equal parts of the memory.

    The part of a task is a random sample of it. It is taken while the task is learned, not in a second look at its end.
    """

    needs_boundaries = True

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.admission = PerTask(parts)


class AGEMR(Projected):
    """A-GEM-R: the memory is one reservoir over the stream, so no boundaries are needed and the task at hand is in it.

    Replayed images are normalised and augmented as all others are; the code its published numbers come from leaves
    that out. Reference: Buzzega et al., *Dark Experience for General Continual Learning*, NeurIPS 2020.
    """

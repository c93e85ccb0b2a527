"""Losses and weights that are still numbers: what is stored never holds a run that diverged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from sncl.errors import Diverged
from sncl.evaluation.collapse import Collapse
from sncl.tensors.fields import Fields
from sncl.training.inputs import total

if TYPE_CHECKING:
    from sncl.training.learner import Learner

STEPS_AT_ONCE = 50  # whose losses are looked at together on a GPU: a run that diverges goes on no longer than that

SMALL = 10_000  # numbers, up to which nothing is shared out among cores

LOST = 2.0**24  # a loss to which single precision can add no 1 any more


def check_finite(kind: str, values: Fields, step: int) -> None:
    """Raise :class:`Diverged` where a loss or weight (``kind``) is infinite or NaN."""
    for name, value in values.items():
        if not torch.isfinite(value).all():
            raise Diverged(_broken(kind, name, "nan" if value.isnan().any() else "infinite", step))


def _broken(kind: str, name: str, found: str, step: int) -> str:
    return (
        f"the {kind} {name!r} became {found} by step {step}; use a smaller `lr` or smaller weights of the losses; what "
        "was stored before is untouched"
    )


class LossWatch:
    """The losses of a learner, looked at as they come; on a GPU, which must not wait, some steps at a time.

    Once one of them is no number, every further :meth:`check` raises. ``largest`` is the largest one so far.
    """

    def __init__(self, device: torch.device) -> None:
        self.steps_at_once = 1 if device.type == "cpu" else STEPS_AT_ONCE
        self.restart()

    def restart(self) -> None:
        """Nothing was seen yet."""
        self._unseen: list[tuple[int, Fields]] = []
        self.diverged = ""
        self.largest = 0.0

    def see(self, losses: Fields, step: int) -> None:
        """Take in the losses of a step; an error names the first that was no number."""
        if self.steps_at_once == 1:
            for name, loss in losses.items():
                self._take(step, name, (loss if loss.dim() == 0 else loss.sum()).item())
            return
        self._unseen.append((step, losses))
        if len(self._unseen) >= self.steps_at_once:
            self.look()

    def look(self) -> None:
        """Look at what was not looked at yet."""
        if not self._unseen:
            return
        unseen, self._unseen = self._unseen, []
        each = [(step, name, loss) for step, losses in unseen for name, loss in losses.items()]
        values = _on_host([loss if loss.dim() == 0 else loss.sum() for *_, loss in each])
        for (step, name, _), value in zip(each, values, strict=True):
            self._take(step, name, value)

    def _take(self, step: int, name: str, loss: float) -> None:
        if not math.isfinite(loss):
            self.diverged = _broken("loss", name, "nan" if math.isnan(loss) else "infinite", step)
            raise Diverged(self.diverged)
        self.largest = max(self.largest, abs(loss))

    def check(self) -> None:
        """Raise where a learner has diverged; a GPU is waited for."""
        self.look()
        self.refuse()

    def refuse(self) -> None:
        """Raise where a learner is known to have diverged."""
        if self.diverged:
            raise Diverged(f"{self.diverged}; load what was saved before, or make another learner")


def _on_host(values: list[Tensor]) -> list[float]:
    """Scalars as numbers, with one transfer from a GPU."""
    if not values or values[0].device.type == "cpu":
        return [value.item() for value in values]
    numbers: list[float] = torch.stack(values).tolist()
    return numbers


def check_learned(largest: float, collapsed: Collapse | None) -> None:
    """Raise :class:`Diverged` for a task that was not learned and whose loss once was beyond what single precision can
    tell apart: dead neurons may make it small again."""
    if collapsed is not None and largest >= LOST:
        raise Diverged(
            f"the loss rose to {largest:.1e} in task {collapsed.task}, and the task was not learned (mean recall "
            f"{collapsed.recall:.1f} %, chance {collapsed.chance:.1f} %); use a smaller `lr` or smaller weights of the "
            "losses; what was stored before is untouched"
        )


def checked_logits(learner: Learner, logits: Tensor) -> Tensor:
    """The logits; refuse to predict with a network that the last update broke."""
    if math.isnan(total(logits)) and logits.isnan().any():
        try:
            with learner.predicting():
                check_weights(learner)
        except Diverged as error:
            learner.watch.diverged = str(error)
            raise
    return logits


def check_weights(learner: Learner) -> None:
    """Refuse to store a network that has diverged, also one, or an average, that only the last update broke: its loss
    was still a number.

    Weights and running statistics are finite. Other buffers may be infinite, as masks of attention are, but not NaN.
    """
    learner.watch.check()
    net, average = learner.ready.net.body, learner.ready.average
    if _are_finite(chain(net.parameters(), net.buffers(), () if average is None else average.slow.values())):
        return
    finite = {name for name, _ in net.named_parameters(remove_duplicate=False)} | set(_statistics(net))
    for tensors in (net.state_dict(), {} if average is None else average.slow):
        checked = {
            name: value if name in finite else value.nan_to_num(nan=torch.nan, posinf=0, neginf=0)
            for name, value in tensors.items()
            if value.is_floating_point()
        }
        check_finite("weights", checked, learner.steps)


def check_update(learner: Learner) -> None:
    """The same in short, behind a step: only what it changes is looked at, parameters that move and all buffers."""
    learner.watch.check()
    finite_check = learner.ready.engine.finite_check()
    if finite_check is None or not finite_check.is_finite():
        check_weights(learner)


def _are_finite(tensors: Iterable[Tensor]) -> bool:
    """A fast first look: norms are finite unless a number is not or they overflow."""
    numbers = [each for each in tensors if each.is_floating_point()]
    with torch.no_grad():
        norms = torch._foreach_norm(numbers) if numbers else ()
    return all(math.isfinite(each.item()) for each in norms)


class FiniteCheck:
    """That first look again and again, at tensors which stay where they are: behind every step of single rows.

    Small ones on the host are read as arrays of NumPy, which begins sooner; ``arrays`` hold the same numbers.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        numbers = [each.detach() for each in tensors if each.is_floating_point()]
        small = {id(each) for each in numbers if _is_small(each)}
        self.arrays = [each.view(-1).numpy() for each in numbers if id(each) in small]
        self.others = [each for each in numbers if id(each) not in small]

    def is_finite(self) -> bool:
        """Whether all numbers are finite; if not, some may be all the same."""
        squares = all(math.isfinite(each.dot(each)) for each in self.arrays)
        return squares and (not self.others or _are_finite(self.others))


def _is_small(tensor: Tensor) -> bool:
    """Whether one core of NumPy sums the squares of a tensor in no time."""
    plain = tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.dtype in (torch.float32, torch.float64)
    return plain and tensor.numel() <= SMALL


def _statistics(net: nn.Module) -> Iterator[str]:
    """The names of buffers that follow the data."""
    for place, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, _NormBase):
            yield from (f"{place}.{name}".removeprefix(".") for name, _ in module.named_buffers())

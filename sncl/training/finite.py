"""Losses and weights that are still numbers: what is stored never holds a run that diverged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from sncl.errors import Diverged
from sncl.tensors.fields import Fields

if TYPE_CHECKING:
    from sncl.training.learner import Learner


def check_finite(kind: str, values: Fields, step: int) -> None:
    """Raise :class:`Diverged` where a loss or weight (``kind``) is infinite or NaN."""
    for name, value in values.items():
        if not torch.isfinite(value).all():
            found = "nan" if value.isnan().any() else "infinite"
            raise Diverged(
                f"the {kind} {name!r} became {found} by step {step}; use a smaller `lr` or smaller weights of the "
                "losses; what was stored before is untouched"
            )


def check_losses(losses: Fields, step: int) -> None:
    """Refuse losses that are no numbers any more."""
    check_finite("loss", losses, step)


def check_weights(learner: Learner) -> None:
    """Refuse to store a network, or an average of it, that the last update broke: its loss was still a number.

    Weights and running statistics are finite. Other buffers may be infinite, as masks of attention are, but not NaN.
    """
    net, average = learner.ready.net.body, learner.ready.average
    finite = {name for name, _ in net.named_parameters(remove_duplicate=False)} | set(_statistics(net))
    for tensors in (net.state_dict(), {} if average is None else average.slow):
        checked = {
            name: value if name in finite else value.nan_to_num(nan=torch.nan, posinf=0, neginf=0)
            for name, value in tensors.items()
            if value.is_floating_point()
        }
        check_finite("weights", checked, learner.steps)


def _statistics(net: nn.Module) -> Iterator[str]:
    """The names of buffers that follow the data."""
    for place, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, _NormBase):
            yield from (f"{place}.{name}".removeprefix(".") for name, _ in module.named_buffers())

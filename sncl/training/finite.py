"""Losses and weights that are still numbers: what is stored never holds a run that diverged."""

from __future__ import annotations

import torch

from sncl.errors import Diverged
from sncl.tensors.fields import Fields, within


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


def check_network(state: Fields, step: int) -> None:
    """Refuse to store a network that the last update broke: its loss was still a number."""
    check_finite("weights", within("network", state), step)

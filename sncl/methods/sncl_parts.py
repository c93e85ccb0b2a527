"""SNCL from settings that are numbers and words: the ways to admit samples and the policies of gates, by name."""

from __future__ import annotations

from typing import Any

from sncl.errors import SnclError
from sncl.memory.admission import Admission, LossAwareReservoir, Reservoir
from sncl.methods.sncl import SNCL
from sncl.networks.gating.policies import KL, Gating, Grow

ADMISSIONS: dict[str, type[Admission]] = {"loss-aware": LossAwareReservoir, "reservoir": Reservoir}
GATINGS: dict[str, type[Gating] | None] = {"off": None, "grow": Grow, "kl": KL}


def make_sncl(
    gates: str, admission: str, features: str, alpha: float, beta: float, gamma: float, ace: int = 0, **policy: Any
) -> SNCL:
    """SNCL from settings that are numbers and words."""
    if admission not in ADMISSIONS:
        raise SnclError(f"`admission` is one of {', '.join(ADMISSIONS)}, not {admission!r}")
    gating = GATINGS[gates]
    if gating is not None:
        policy["layers"] = layer_names(policy["layers"])
    made = None if gating is None else gating(**policy)
    return SNCL(alpha, beta, gamma, made, ADMISSIONS[admission](), layer_names(features), ace)


def layer_names(text: str) -> tuple[str, ...] | None:
    """Layer names with commas between them; None for "auto"."""
    return None if text == "auto" else tuple(name.strip() for name in text.split(","))

"""Whether an exported model predicts what its learner does."""

from __future__ import annotations

from torch import Tensor

from sncl.errors import SnclError

TIE = 1e-4  # of the largest logit of a sample: classes nearer to each other than this may change places


def other_predictions(expected: Tensor, found: Tensor) -> int:
    """For how many samples another class is predicted than expected, ties aside."""
    best = expected.amax(1)
    behind = best - expected.gather(1, found.argmax(1, keepdim=True))[:, 0]
    return int((found.isnan().any(1) | ~(behind <= TIE * best.abs().clamp(min=1))).sum())


def refuse_other_predictions(wrong: int, samples: int, difference: float) -> None:
    """An error where there are any."""
    if wrong:
        raise SnclError(
            f"the exported model predicts another class than the network for {wrong} of {samples} samples (logits "
            f"differ by up to {difference:.1e}); nothing was written"
        )

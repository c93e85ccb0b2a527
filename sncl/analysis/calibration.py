"""Whether a network is right as often as it is sure: calibration, likelihood and entropy of its predictions.

Once for the network as it predicts (gates at their mean) and, where gates are random, for the average of the softmax
over samples of the gates' posterior, which is what the variational model itself predicts. All output units compete.
The expected calibration error is that of Guo et al., *On Calibration of Modern Neural Networks*, 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sncl.analysis.samples import samples_of_tests
from sncl.networks.gating.attach import sampling, variance_gates
from sncl.runs.loading import Trained
from sncl.streams.cache import Progress
from sncl.tensors.random import Randomness
from sncl.training.learner import Learner

BINS = 15


def reliability(confidence: Tensor, right: Tensor, bins: int = BINS) -> list[dict[str, Any]]:
    """The samples by confidence, in bins (low, high] of equal width: how many, how sure, how often right (0 to 1)."""
    place = ((confidence * bins).ceil().long() - 1).clamp(0, bins - 1)
    found = []
    for number in range(bins):
        here = place == number
        count = int(here.sum())
        found.append(
            {
                "low": number / bins,
                "high": (number + 1) / bins,
                "count": count,
                "confidence": float(confidence[here].mean()) if count else None,
                "accuracy": float(right[here].double().mean()) if count else None,
            }
        )
    return found


def calibration_error(bins: Sequence[dict[str, Any]]) -> float:
    """The gap between how sure and how often right, averaged over samples by bins."""
    filled = [each for each in bins if each["count"]]
    gaps = (each["count"] * abs(each["accuracy"] - each["confidence"]) for each in filled)
    return float(sum(gaps) / sum(each["count"] for each in filled))


def assess(probabilities: Tensor, y: Tensor, bins: int = BINS) -> dict[str, Any]:
    """Every measure of probabilities [samples, classes] against labels; accuracy in percent, entropy in nats."""
    probabilities = probabilities.double()
    confidence, answer = probabilities.max(1)
    right = answer == y
    entropy = torch.special.entr(probabilities).sum(1)
    chance = probabilities.gather(1, y[:, None])[:, 0].clamp_min(torch.finfo(torch.float64).tiny)
    found = reliability(confidence, right, bins)
    return {
        "accuracy": 100 * int(right.sum()) / len(y),
        "negative_log_likelihood": float(-chance.log().mean()),
        "expected_calibration_error": calibration_error(found),
        "entropy_right": float(entropy[right].mean()) if right.any() else None,
        "entropy_wrong": float(entropy[~right].mean()) if (~right).any() else None,
        "reliability": found,
    }


def posterior_average(learner: Learner, x: Tensor, samples: int, randomness: Randomness) -> Tensor:
    """The softmax averaged over samples of the gates' posterior, drawn from the generator "posterior". float64"""
    with sampling(learner.net), randomness.as_global("posterior"):
        drawn = [learner.logits(x).double().softmax(1) for _ in range(samples)]
    return torch.stack(drawn).mean(0)


def calibration(
    run: Trained,
    *,
    samples: int = 20,
    rows: int = 10_000,
    bins: int = BINS,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Calibration on about ``rows`` test samples (0: all), as many of each task, all taken together."""
    run.refuse_own_predictions()
    learner = run.learner
    parts = samples_of_tests(run.stream, rows, seed)
    y = torch.cat([labels for _, labels in parts])
    plain = torch.cat([learner.logits(x).double().softmax(1) for x, _ in parts])
    measures: dict[str, Any] = {"mean": assess(plain, y, bins)}
    if next(variance_gates(learner.net), None) is not None:
        randomness = Randomness(seed, host=(), device=("posterior",), on=learner.device)
        averaged = []
        for number, (x, _) in enumerate(parts, start=1):
            averaged.append(posterior_average(learner, x, samples, randomness))
            if progress is not None:
                progress(number, len(parts))
        measures["sampled"] = assess(torch.cat(averaged), y, bins)
    return {"measures": measures, "test_rows": len(y), "samples": samples if "sampled" in measures else 0}

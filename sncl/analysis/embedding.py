"""What a network makes of its inputs: its last features, in two dimensions by t-SNE.

All classes after the stream, and, for one task, its test samples after the stream beside the same samples right after
the task, embedded together. The paper compares with a network that was trained on that task alone; such a network has
a basis of its own, so the distance to it says little about forgetting. We compare the network with its own past.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sncl.analysis.samples import samples_of_test, samples_of_tests
from sncl.errors import SnclError
from sncl.methods.icarl import last_features
from sncl.networks.last import tap_last
from sncl.runs.loading import Trained
from sncl.streams.cache import Progress
from sncl.streams.stream import Stream
from sncl.streams.transforms import eval_input
from sncl.training.learner import Learner

PERPLEXITY = 30.0
FEWEST_EMBEDDED = 5  # to embed


def representations(learner: Learner, x: Tensor) -> Tensor:
    """What the classifier reads of each sample, in evaluation. [samples, features]"""
    seen = partial(eval_input, learner.transform)
    tapped = tap_last(learner.net.body, seen(x[:2]))
    try:
        with torch.no_grad():
            return last_features(tapped, x, seen).flatten(1).cpu()
    finally:
        tapped.remove()


def embed(features: Tensor, seed: int) -> list[list[float]]:
    """Two coordinates for each sample."""
    from sklearn.manifold import TSNE

    if len(features) < FEWEST_EMBEDDED or not float(features.std()) > 0:
        raise SnclError(f"t-SNE needs at least {FEWEST_EMBEDDED} samples whose representations are not all the same")
    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    made = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(features.numpy())
    points: list[list[float]] = made.tolist()
    return points


def separation(features: Tensor, labels: Tensor) -> float | None:
    """The mean silhouette of the classes in the space of the features: 1 apart, 0 on top of each other."""
    from sklearn.metrics import silhouette_score

    kinds = len(labels.unique())
    return float(silhouette_score(features.numpy(), labels.numpy())) if 1 < kinds < len(labels) else None


def drift(then: Tensor, now: Tensor) -> float:
    """How far features moved, as a part of how far they lay apart: root of mean square over the same of the spread."""
    apart = (then - then.mean(0)).square().sum(1).mean()
    return float(((now - then).square().sum(1).mean() / apart).sqrt())


def label_names(stream: Stream, labels: Tensor) -> list[int] | list[str]:
    """Labels by their names, where they have any."""
    numbers: list[int] = labels.tolist()
    return [stream.names[number] for number in numbers] if stream.names else numbers


def tsne(
    run: Trained, *, task: int | None = None, rows: int = 2_000, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Embed about ``rows`` test samples (0: all) and, if the run kept its networks, a ``task`` then and now."""
    refuse_task(run, task)
    steps = 1 if task is None else 2
    found = after_stream(run, rows, seed)
    if progress is not None:
        progress(1, steps)
    if task is None:
        return found
    earlier = run.after_task(task)
    if earlier is None:
        return found | {"one_task": None}
    found["one_task"], found["measures"]["drift"] = then_and_now(run, earlier, task, rows, seed)
    if progress is not None:
        progress(2, steps)
    return found


def refuse_task(run: Trained, task: int | None) -> None:
    """Refuse a task that the run does not have, or did not learn by itself."""
    if task is not None and not 1 <= task <= run.stream.test_tasks:
        raise SnclError(f"{run.folder} has the tasks 1 to {run.stream.test_tasks}, not {task}")
    if task is not None and run.stream.joined:
        raise SnclError(f"{run.folder} learned all tasks at once, so there is no network right after one; drop `task`")


def after_stream(run: Trained, rows: int, seed: int) -> dict[str, Any]:
    """All classes after the stream: how far they lie apart, and their embedding."""
    parts = samples_of_tests(run.stream, rows, seed)
    labels = torch.cat([y for _, y in parts]).cpu()
    features = torch.cat([representations(run.learner, x) for x, _ in parts])
    return {
        "measures": {"separation": separation(features, labels)},
        "test_rows": len(labels),
        "after_stream": {
            "points": embed(features, seed),
            "labels": label_names(run.stream, labels),
            "tasks": [number for number, (_, y) in enumerate(parts, start=1) for _ in range(len(y))],
        },
    }


def then_and_now(run: Trained, earlier: Learner, task: int, rows: int, seed: int) -> tuple[dict[str, Any], float]:
    """One task after the stream and right after it, embedded together, and how far it has drifted."""
    x, y = samples_of_test(run.stream, task - 1, rows, seed)
    now, then = (representations(learner, x) for learner in (run.learner, earlier))
    points = embed(torch.cat([now, then]), seed)
    labels = label_names(run.stream, y)
    return {"task": task, "labels": labels, "now": points[: len(y)], "then": points[len(y) :]}, drift(then, now)


def without_task(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The run folders that were asked for one task and did not keep its network."""
    return [run["run"] for run in runs if "one_task" in run and run["one_task"] is None]

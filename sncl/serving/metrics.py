"""What the server counts, as text that Prometheus reads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

import sncl
from sncl.serving.service import Service

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class _Sample(NamedTuple):
    """One line: what stands behind the name of its metric, labels and a value."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


class RequestCounts:
    """How many requests there were and how long they took, by route and status."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.statuses: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, float] = {}
        self.buckets: dict[str, list[int]] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """One more request has been answered."""
        with self.lock:
            self.statuses[route, status] = self.statuses.get((route, status), 0) + 1
            self.seconds[route] = self.seconds.get(route, 0.0) + seconds
            counts = self.buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
            counts[sum(seconds > limit for limit in BUCKETS)] += 1

    def metrics(self) -> Iterator[str]:
        """Both as lines."""
        with self.lock:
            by_status = [
                _Sample(count, (("route", route), ("status", str(status))))
                for (route, status), count in sorted(self.statuses.items())
            ]
            histogram = [each for route in sorted(self.buckets) for each in self._histogram(route)]
        yield from _metric("sncl_requests_total", "counter", "Requests that were answered", by_status)
        yield from _metric("sncl_request_seconds", "histogram", "Time from a request to its answer", histogram)

    def _histogram(self, route: str) -> Iterator[_Sample]:
        total = 0
        for limit, count in zip((*BUCKETS, math.inf), self.buckets[route], strict=True):
            total += count
            yield _Sample(total, (("route", route), ("le", _number(limit))), "_bucket")
        yield _Sample(self.seconds[route], (("route", route),), "_sum")
        yield _Sample(total, (("route", route),), "_count")


def metrics_text(service: Service, requests: RequestCounts) -> str:
    """Everything, in the text format of Prometheus 0.0.4."""
    return "".join(line + "\n" for part in (_model_metrics(service), requests.metrics()) for line in part)


def _model_metrics(service: Service) -> Iterator[str]:
    with service.changed:
        score, predicted, waiting = service.ledger.score, service.ledger.predicted, len(service.ledger.waiting)
        queued = len(service.queue)
    teacher, journal = service.teacher, service.journal
    facts = teacher.view.facts
    yield from _metric("sncl_info", "gauge", "The version of sncl", [_Sample(1, (("version", sncl.__version__),))])
    for name, kind, text, value in (
        ("sncl_rows_learned_total", "counter", "Rows that were learned", teacher.learned),
        ("sncl_rows_predicted_total", "counter", "Rows that were predicted", predicted),
        ("sncl_labelled_predictions_total", "counter", "Predictions whose label came", score.labelled),
        ("sncl_right_predictions_total", "counter", "Predictions that their label proved right", score.right),
        ("sncl_accuracy_ratio", "gauge", "Share of right predictions, of all whose label came", score.accuracy),
        ("sncl_recent_accuracy_ratio", "gauge", "The same, where older ones count less and less", score.recent),
        ("sncl_pending_predictions", "gauge", "Predictions that wait for their label", waiting),
        ("sncl_queued_requests", "gauge", "Requests that are acknowledged and not learned yet", queued),
        ("sncl_refused_lessons_total", "counter", "Acknowledged requests that could not be learned", teacher.refused),
        ("sncl_learning_failed", "gauge", "1 if nothing is learned any more", float(bool(teacher.failed))),
        ("sncl_steps_total", "counter", "Training steps of the model", facts.steps),
        ("sncl_classes", "gauge", "Classes of the model", facts.classes),
        ("sncl_memory_samples", "gauge", "Samples in the memory", facts.samples),
        ("sncl_memory_capacity", "gauge", "Samples that the memory can hold", facts.capacity),
        ("sncl_open_neurons_ratio", "gauge", "Share of the gated neurons that are open", facts.open),
        ("sncl_view_age_seconds", "gauge", "Age of what predicts", time.monotonic() - teacher.view_made),
    ):
        yield from _metric(name, kind, text, [] if value is None else [_Sample(value)])
    if journal is not None:
        age = time.monotonic() - service.stored_at
        yield from _metric("sncl_snapshot_age_seconds", "gauge", "Time since the last snapshot", [_Sample(age)])
        yield from _metric(
            "sncl_journal_bytes", "gauge", "Length of the journal behind the last snapshot", [_Sample(journal.bytes)]
        )


def _metric(name: str, kind: str, text: str, samples: list[_Sample]) -> Iterator[str]:
    """Lines of one metric; none where there is nothing to say."""
    if samples:
        yield f"# HELP {name} {text}."
        yield f"# TYPE {name} {kind}"
    for value, labels, suffix in samples:
        named = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels)
        yield f"{name}{suffix}{{{named}}} {_number(value)}" if named else f"{name}{suffix} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)

"""Tables of results: one row for each method and memory, mean ± standard deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from sncl.methods.table import method_title
from sncl.runs.result import Result

COLLAPSED = "†"
COLLAPSE_NOTE = (
    f"{COLLAPSED} collapsed: a task or more was not learned, with answers no better than chance; use a smaller `lr` "
    "or more `epochs`"
)
READOUT_TITLES = {"class_il": "Class-IL", "task_il": "Task-IL", "domain_il": "Domain-IL", "gcl": "GCL"}


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (0 for a single value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def show(values: Iterable[float | None]) -> str:
    """``mean ± std`` of the numbers among ``values``, or a dash."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, deviation = mean_std(known)
    return f"{mean:.2f} ± {deviation:.2f}" if len(known) > 1 else f"{mean:.2f}"


class CollapsedRuns(NamedTuple):
    """How many of the runs behind a number have collapsed."""

    collapsed: int
    runs: int

    @classmethod
    def among(cls, runs: Iterable[bool]) -> Self:
        """Of runs that are True where they collapsed."""
        found = list(runs)
        return cls(sum(found), len(found))

    def mark(self, number: str) -> str:
        """The number with a mark, where there is a number and one of its runs collapsed."""
        return f"{number} {COLLAPSED}" if self.collapsed and number != "–" else number

    def tell(self, seeds: str) -> str:
        """The number of seeds, and how many of several collapsed."""
        return f"{seeds}, {self.collapsed} of {self.runs} collapsed" if self.collapsed and self.runs > 1 else seeds


@dataclass(frozen=True)
class SeedGroup:
    """The runs that differ in nothing but the seed."""

    stream: str
    method: str
    memory: int
    results: tuple[Result, ...]
    named: str = ""  # where the method does not tell it from others

    @property
    def title(self) -> str:
        return self.named or method_title(self.method)

    def accuracy(self, readout: str) -> list[float | None]:
        return [result.accuracy.get(readout) for result in self.results]


def by_seeds(results: Iterable[Result]) -> list[SeedGroup]:
    """Collect results by stream, method and memory, in the order they come."""
    found: dict[tuple[str, str, int], list[Result]] = {}
    for result in results:
        found.setdefault((result.stream, result.method, result.memory), []).append(result)
    return [SeedGroup(*key, tuple(members)) for key, members in found.items()]


def readouts(results: Iterable[Result]) -> list[str]:
    """The read-outs that occur in these results, in the usual order."""
    present = {readout for result in results for readout in result.accuracy}
    return [readout for readout in READOUT_TITLES if readout in present]


def results_table(
    results: Sequence[Result], groups: Sequence[SeedGroup] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: accuracy by read-out, forgetting, open neurons and time.

    A line is one of the ``groups``; without them, the runs of a stream, method and memory.
    """
    shown = readouts(results)
    headings = ["stream", "method", "memory", "seeds", *(READOUT_TITLES[readout] for readout in shown)]
    headings += ["forgetting", "open", "seconds"]
    cells = []
    for row in by_seeds(results) if groups is None else groups:
        fractions = [result.active_fraction for result in row.results if result.active_fraction is not None]
        collapsed = CollapsedRuns.among(result.has_collapsed for result in row.results)
        cells.append(
            [
                row.stream,
                row.title,
                str(row.memory) if row.memory else "–",
                collapsed.tell(str(len(row.results))),
                *(collapsed.mark(show(row.accuracy(readout))) for readout in shown),
                show(result.forgetting for result in row.results),
                f"{100 * statistics.fmean(fractions):.0f} %" if fractions else "–",
                f"{statistics.fmean(result.seconds for result in row.results):.1f}",
            ]
        )
    return headings, cells


def footnote(results: Iterable[Result]) -> str | None:
    """What a table of these results says below itself: what its mark means, where it has one."""
    return COLLAPSE_NOTE if any(result.has_collapsed for result in results) else None

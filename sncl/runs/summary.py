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
UNEVEN_HEADINGS = ("balanced", "majority")  # mean recall over classes, and the most frequent class as the only answer
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
    """Headings and cells: accuracy by read-out, what uneven classes make of it, forgetting, open neurons and time.

    A line is one of the ``groups``; without them, the runs of a stream, method and memory.
    """
    shown = readouts(results)
    headings = ["stream", "method", "memory", "seeds", *(READOUT_TITLES[readout] for readout in shown)]
    uneven = has_imbalance(results)
    headings += [*(UNEVEN_HEADINGS if uneven else ()), "forgetting", "open", "seconds"]
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
                *(uneven_cells(row.results) if uneven else ()),
                show(result.forgetting for result in row.results),
                f"{100 * statistics.fmean(fractions):.0f} %" if fractions else "–",
                f"{statistics.fmean(result.seconds for result in row.results):.1f}",
            ]
        )
    return headings, cells


def has_imbalance(results: Iterable[Result]) -> bool:
    """Whether the test classes of some of these results are uneven."""
    return any(result.by_class is not None and result.by_class.is_imbalanced for result in results)


def uneven_cells(results: Sequence[Result]) -> list[str]:
    """What stands below :data:`UNEVEN_HEADINGS` for runs that differ in the seed; dashes where classes are even."""
    if not has_imbalance(results):
        return ["–" for _ in UNEVEN_HEADINGS]
    majority = {f"{result.majority:.2f}" for result in results if result.majority is not None}
    return [show(result.balanced_accuracy for result in results), ", ".join(sorted(majority))]


def majority_warnings(results: Iterable[Result]) -> list[str]:
    """In words, which runs are right less often than the answer that is the most frequent class, one line a method."""
    return [line for group in by_seeds(results) if (line := _below_majority(group)) is not None]


def _below_majority(group: SeedGroup) -> str | None:
    below = [
        (result, result.by_class)
        for result in group.results
        if result.by_class is not None and result.by_class.is_below_majority
    ]
    if not below:
        return None
    result, found = below[0]
    most = found.samples.index(max(found.samples))
    name = result.class_names[most] if result.class_names is not None and most < len(result.class_names) else str(most)
    seeds = f" with {len(below)} of {len(group.results)} seeds" if len(group.results) > 1 else ""
    right = mean_std([each.pooled_accuracy for _, each in below])[0]
    return (
        f"{group.title} is below the majority baseline{seeds}: {right:.2f} % of the {result.scored_on} samples are "
        f"answered right, and always answering {name!r} would get {found.majority:.2f} %"
    )


def footnote(results: Iterable[Result]) -> str | None:
    """What a table of these results says below itself: what its mark means, where it has one."""
    return COLLAPSE_NOTE if any(result.has_collapsed for result in results) else None

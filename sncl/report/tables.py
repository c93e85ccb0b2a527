"""The final numbers of a report, with the paper's beside them where they can be compared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sncl.paper.tables import Published, published_for
from sncl.report.figures.figure import groups_by_stream, readout_title
from sncl.report.groups import RunGroup
from sncl.runs.summary import UNEVEN_HEADINGS, CollapsedRuns, has_imbalance, show, uneven_cells
from sncl.streams.benchmarks import STREAMS


def final(groups: Sequence[RunGroup]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each stream: its name, the headings, and the cells of one line a group."""
    return [(stream, *final_of(members)) for stream, members in groups_by_stream(groups).items()]


def final_of(members: Sequence[RunGroup]) -> tuple[list[str], list[list[str]]]:
    shown = list(dict.fromkeys(name for each in members for run in each.runs for name in run.result.accuracy))
    papers = [paper(each) for each in members]
    headings = ["method", "memory", "seeds"]
    for readout in shown:
        headings.append(f"{readout_title(readout)}, %")
        if any(readout in found for found in papers):
            headings.append("paper, %")
    uneven = has_imbalance(run.result for each in members for run in each.runs)
    headings += [*(f"{heading}, %" for heading in UNEVEN_HEADINGS if uneven), "forgetting", "open", "seconds"]
    headings.append("bytes a sample")
    lines = []
    for each, found in zip(members, papers, strict=True):
        results = [run.result for run in each.runs]
        collapsed = CollapsedRuns.among(result.has_collapsed for result in results)
        line = [each.title, str(each.memory) if each.memory else "–", collapsed.tell(str(len(results)))]
        for readout in shown:
            line.append(collapsed.mark(show(result.accuracy.get(readout) for result in results)))
            if any(readout in other for other in papers):
                line.append(printed(found.get(readout)))
        fractions = [result.active_fraction for result in results if result.active_fraction is not None]
        line += [
            *(uneven_cells(results) if uneven else ()),
            show(result.forgetting for result in results),
            f"{100 * statistics.fmean(fractions):.0f} %" if fractions else "–",
            f"{statistics.fmean(result.seconds for result in results):.1f}",
            f"{results[0].memory_bytes_per_sample:,}" if each.memory else "–",
        ]
        lines.append(line)
    return headings, lines


def printed(value: Published | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def paper(group: RunGroup) -> dict[str, Published]:
    """What the paper prints for these runs, by read-out; nothing unless they were made and scored as there."""
    run, benchmark = group.runs[0], STREAMS.get(group.stream)
    if benchmark is None or run.experiment.get("validation") != 0:
        return {}
    if (run.experiment.get("tasks"), run.experiment.get("epochs")) != (benchmark.tasks, benchmark.epochs):
        return {}
    return published_for(group.stream, group.method, group.memory, run.experiment["settings"])

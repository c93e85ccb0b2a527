"""The sections of a page: which tables and figures stand in each, and those that have nothing to show left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from sncl.report.elements import figure_element, sheet_element, table_element
from sncl.report.figures.accuracy import accuracy_figure, forgetting_figure, matrix_figure
from sncl.report.figures.classes import confusion_figure, recall_figure
from sncl.report.figures.figure import Figure
from sncl.report.figures.memory import balance_figure, stored_loss_figure
from sncl.report.figures.size import COMMAND, TITLE, Sweeps, size_figure, unknown_sizes
from sncl.report.figures.sparsity import log_lambda_figure, neuron_use_figure, open_neurons_figure, overlap_figure
from sncl.report.figures.training import cost_figure, loss_figure
from sncl.report.groups import RunGroup
from sncl.report.stored import Stored
from sncl.report.tables import final
from sncl.runs.summary import COLLAPSE_NOTE

MOST_SHEETS = 12


class Section(NamedTuple):
    """A part of the page: its name in links, its title, its figures, and the HTML below them."""

    name: str
    title: str
    figures: list[Figure]
    html: str = ""

    def content(self) -> str:
        """Its figures and what stands below them. A figure that is alone needs no title of its own."""
        several = len(self.figures) + bool(self.html) > 1
        return "\n".join([*(figure_element(each, several) for each in self.figures), self.html])


def sections(groups: Sequence[RunGroup], stored: Mapping[str, Stored], sweeps: Sweeps) -> list[Section]:
    """The sections that have something to show, with the figures that have."""
    memory = [balance_figure(groups), stored_loss_figure(groups, stored)]
    sparsity = [open_neurons_figure(groups), neuron_use_figure(groups), overlap_figure(groups)]
    sparsity += [log_lambda_figure(groups, stored), size_figure(groups, sweeps)]
    wanted = [
        Section("results", "Final results", [], final_tables(groups)),
        Section("over-time", "Accuracy over time", [accuracy_figure(groups)]),
        Section("matrices", "Accuracy matrix", [matrix_figure(groups)]),
        Section("classes", "By class", [recall_figure(groups), confusion_figure(groups)]),
        Section("by-task", "Forgetting", [forgetting_figure(groups)]),
        Section("training", "Training losses", [loss_figure(groups)]),
        Section("spent", "Time and memory", [cost_figure(groups)]),
        Section("memory", "The memory", memory, sheets(groups, stored)),
        Section("sparsity", "Sparsity", sparsity, size_note(groups, sweeps)),
        Section("settings", "Settings and manifest", [], settings(groups)),
    ]
    drawn = [each._replace(figures=[figure for figure in each.figures if figure.views]) for each in wanted]
    return [each for each in drawn if each.figures or each.html]


def final_tables(groups: Sequence[RunGroup]) -> str:
    """The final numbers, a table for each stream."""
    parts = [
        f"<h3>{escape(stream)}</h3>" + table_element(headings, cells, stream)
        for stream, headings, cells in final(groups)
    ]
    scored = {run.result.scored_on for each in groups for run in each.runs}
    note = (
        f"Accuracy on the {' or '.join(sorted(scored))} set after the last task, mean ± standard deviation over seeds."
    )
    notes = [note, *collapse_notes(groups)]
    return "\n".join([*parts, *(f'<p class="quiet">{escape(text)}</p>' for text in notes)])


def collapse_notes(groups: Sequence[RunGroup]) -> list[str]:
    """What the mark of a run that collapsed means, and which runs have it; nothing where none has."""
    found = [f"{each.stream}, {each.title}: {'; '.join(words)}." for each in groups if (words := each.collapses())]
    return [COLLAPSE_NOTE.replace("`", "") + ".", *found] if found else []


def sheets(groups: Sequence[RunGroup], stored: Mapping[str, Stored]) -> str:
    """The images the memories hold, each sheet behind its title."""
    found = [(each, stored[each.first_folder].sheet) for each in groups]
    shown = [(each, sheet) for each, sheet in found if sheet is not None]
    parts = [sheet_element(each, sheet, number == 0) for number, (each, sheet) in enumerate(shown[:MOST_SHEETS])]
    if not parts:
        return ""
    left = f" Of {len(shown)} memories the first {MOST_SHEETS} are shown." if len(shown) > MOST_SHEETS else ""
    note = f"What the memory of the first seed holds at the end, sorted by class.{left}"
    return "\n".join([f'<h3>Images in the memory</h3><p class="quiet">{note}</p>', *parts])


def size_note(groups: Sequence[RunGroup], sweeps: Sweeps) -> str:
    """What was not analysed, and the command that does it; nothing where nothing is missing."""
    missing = unknown_sizes(groups, sweeps)
    if not missing:
        return ""
    heading = "" if sweeps else f"<h3>{TITLE}</h3>"
    return f'{heading}<p class="quiet">Not measured of {escape("; ".join(missing))}: {COMMAND} does it.</p>'


def settings(groups: Sequence[RunGroup]) -> str:
    """What every group was made with, each behind its title."""
    return "\n".join(
        f"<details><summary>{escape(f'{each.stream} · {each.title}')}</summary>"
        + table_element(["setting", "value"], [[key, value] for key, value in manifest(each).items()], "settings")
        + "</details>"
        for each in groups
    )


def manifest(group: RunGroup) -> dict[str, str]:
    """What the runs of a group were made with; where they differ, all values there are."""
    keys = ("protocol", "data", "device", "precision", "engine", "threads", "epochs", "tasks", "validation")
    told = [
        {
            "seeds": str(run.result.seed),
            "folders": run.folder.name,
            **{key: str(getattr(run.result.manifest, key)) for key in keys},
            "versions": ", ".join(f"{name} {value}" for name, value in run.result.manifest.versions.items()),
            **{str(key): str(value) for key, value in run.experiment["settings"].items()},
        }
        for run in group.runs
    ]
    return {key: ", ".join(dict.fromkeys(each[key] for each in told)) for key in told[0]}

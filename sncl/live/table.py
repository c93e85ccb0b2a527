"""Many runs, one line each, with as many columns as the terminal is wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from sncl.live.drawing import bar, duration, shade, spark, speed
from sncl.live.following import Followed
from sncl.runs.summary import COLLAPSED
from sncl.training.events import Moment

MARKS = {
    "waiting": ("·", "bright_black"),
    "reading": ("…", "cyan"),
    "running": ("▸", "cyan"),
    "done": ("✓", "green"),
    "stopped": ("✗", "red"),
}
MOST_TITLE = 32
SHORTEST_BAR, LONGEST_BAR = 8, 30
TASK_BARS = 20
GAP = 2


class LiveColumn(NamedTuple):
    """A column of the table: its heading, what it says of a run, and how wide that may be."""

    heading: str
    says: Callable[[Followed], Text]
    width: int
    right: bool = True


def _of(run: Followed, text: Callable[[Moment], str]) -> Text:
    """Where the run is, if it has begun to learn."""
    return Text("" if run.moment is None or run.moment.reading else text(run.moment))


def _name(run: Followed) -> Text:
    mark, style = MARKS[run.state]
    return Text.assemble((f"{mark} ", style), run.title)


def _progress(run: Followed, length: int) -> Text:
    style = {"done": "green", "stopped": "red"}.get(run.state, "cyan")
    part = run.parts[0] if run.moment is None else run.moment.steps / max(run.moment.total, 1)
    return Text.assemble(bar(part, length, style), f" {100 * part:3.0f} %")


def _left(run: Followed) -> Text:
    words = {"done": "done", "stopped": "stopped", "reading": "reading", "waiting": ""}
    return Text(words.get(run.state, duration(run.seconds_left)))


def _accuracy(run: Followed) -> Text:
    value = next(iter(run.accuracy.values()), None)
    if run.evaluation is None or value is None:
        return Text("–", "bright_black")
    mark = COLLAPSED if run.evaluation.collapsed else ""
    return Text.assemble((f"{value:.1f} %", f"bold {shade(value)}"), (mark, "bold yellow"))


def _tasks(run: Followed) -> Text:
    """The accuracy on each task seen as small bars."""
    row = [] if run.evaluation is None else next(iter(run.evaluation.tested.values()))
    return Text(spark([value or 0 for value in row], TASK_BARS, top=100.0), "green")


def _memory(run: Followed) -> Text:
    return _of(
        run, lambda moment: "–" if moment.memory is None else f"{100 * moment.memory[0] / moment.memory[1]:.0f} %"
    )


def _open(run: Followed) -> Text:
    return Text("–", "bright_black") if run.open_part is None else Text(f"{100 * run.open_part:.0f} %")


def _loss(run: Followed) -> Text:
    return Text(f"{sum(run.losses.values()):#.3g}" if run.losses else "–")


# By importance: a narrow terminal leaves out the last ones. On the screen they stand in the order of COLUMN_ORDER.
LIVE_COLUMNS = {
    "left": LiveColumn("left", _left, 7),
    "accuracy": LiveColumn("accuracy", _accuracy, 8),
    "task": LiveColumn("task", lambda run: _of(run, lambda moment: f"{moment.task + 1}/{moment.tasks}"), 5),
    "speed": LiveColumn("steps/s", lambda run: Text(speed(run.steps_per_s)), 7),
    "open": LiveColumn("open", _open, 5),
    "memory": LiveColumn("memory", _memory, 6),
    "loss": LiveColumn("loss", _loss, 8),
    "epoch": LiveColumn("epoch", lambda run: _of(run, lambda moment: f"{moment.epoch + 1}/{moment.epochs}"), 7),
    "tasks": LiveColumn("by task", _tasks, TASK_BARS, right=False),
    "rows": LiveColumn("rows/s", lambda run: Text(speed(run.rows_per_s)), 8),
    "step": LiveColumn("step", lambda run: _of(run, lambda moment: f"{moment.steps:,}/{moment.total:,}"), 15),
}
COLUMN_ORDER = ("left", "task", "epoch", "step", "speed", "rows", "loss", "memory", "open", "accuracy", "tasks")


def runs_table(runs: Sequence[Followed], width: int) -> list[Text]:
    """One line for each run, with as many columns as fit; the bar takes what is left."""
    title = min(max(len(run.title) for run in runs), MOST_TITLE)
    room = width - title - 2 - GAP - SHORTEST_BAR - len(" 100 %")
    seen = max(run.moment.tasks if run.moment is not None else 0 for run in runs)
    columns = LIVE_COLUMNS | {"tasks": LIVE_COLUMNS["tasks"]._replace(width=min(max(seen, len("by task")), TASK_BARS))}
    chosen = set()
    for name, each in columns.items():
        if room < each.width + GAP:
            break
        room -= each.width + GAP
        chosen.add(name)
    length = min(SHORTEST_BAR + max(room, 0), LONGEST_BAR)
    fixed = [LiveColumn("", _name, title + 2, right=False)]
    fixed.append(LiveColumn("progress", lambda run: _progress(run, length), length + len(" 100 %"), right=False))
    shown = fixed + [columns[name] for name in COLUMN_ORDER if name in chosen]
    head = row(shown, [Text(each.heading, "bright_black") for each in shown])
    return [head, *(row(shown, [each.says(run) for each in shown]) for run in runs)]


def row(columns: Sequence[LiveColumn], cells: Sequence[Text]) -> Text:
    """The cells side by side, each as wide as its column. By hand, since a table of rich takes far longer."""
    line = Text()
    for each, cell in zip(columns, cells, strict=True):
        cell.truncate(each.width, overflow="ellipsis")
        space = " " * (each.width - cell.cell_len)
        line.append(space if each.right else "").append_text(cell).append("" if each.right else space).append(" " * GAP)
    line.right_crop(GAP)
    return line

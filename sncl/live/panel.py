"""Everything there is to see of one run, in a panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from sncl.live.drawing import bar, column, course, duration, framed, one_line, shade, spark, speed
from sncl.live.following import Followed
from sncl.runs.summary import COLLAPSED, READOUT_TITLES

SPACIOUS = 24  # lines of a terminal in which there is room between the parts of a panel
LABEL = 11  # width of the first column
SHORT_BAR = 12
STRIP_HEIGHT = 2  # lines of the bars of accuracy
CELL = 5  # width of one of them
NARROW_CELL = 4
NAMED_LAYERS = 3
LOSS_WIDTH = 9


def panel(heading: str, run: Followed, width: int, height: int) -> RenderableType:
    """The panel, a little tighter where the terminal is low."""
    inner = width - 4
    lines = [progress_line(run, inner), place_line(run, inner)]
    for label, part in (
        ("accuracy", accuracy_lines(run, inner - LABEL)),
        ("losses", loss_lines(run, inner - LABEL)),
        ("memory", memory_lines(run, inner - LABEL)),
        ("open gates", gates_lines(run, inner - LABEL)),
    ):
        if part and height >= SPACIOUS and label != "open gates":
            lines.append(Text())
        lines += [
            Text.assemble((f"{'' if number else label:<{LABEL}}", "bold"), line) for number, line in enumerate(part)
        ]
    return framed(heading, *lines)


def progress_line(run: Followed, width: int) -> Text:
    """The bar, how much is done, and how long it will take."""
    moment = run.moment
    assert moment is not None
    part = moment.steps / max(moment.total, 1)
    words = {"done": "done", "stopped": "stopped", "reading": "reading the images, once"}
    told = words.get(run.state, f"{duration(run.seconds_left)} left")
    behind = f"  {100 * part:3.0f} %  {told}"
    style = {"done": "green", "stopped": "red"}.get(run.state, "cyan")
    return one_line(width, bar(part, max(width - len(behind), 8), style), (behind, "bold"))


def place_line(run: Followed, width: int) -> Text:
    """Where in the stream the run is and how fast it is, as far as there is room."""
    moment = run.moment
    assert moment is not None
    if moment.reading:
        return Text(f"{moment.steps:,} of {moment.total:,} images")
    words = [
        f"task {moment.task + 1}/{moment.tasks}",
        f"epoch {moment.epoch + 1}/{moment.epochs}",
        f"step {moment.steps:,}/{moment.total:,}",
        f"{speed(run.steps_per_s)} steps/s",
        f"{speed(run.rows_per_s)} rows/s",
    ]
    return one_line(width, " · ".join(words))


def accuracy_lines(run: Followed, width: int) -> list[Text]:
    """The averages over the tasks seen, and the first read-out task by task: bars with numbers under them."""
    moment, evaluation = run.moment, run.evaluation
    if evaluation is None or moment is None:
        when = "behind the first task" if moment is not None and moment.tasks > 1 else "at the end"
        return [Text(when, "bright_black")] if run.state == "running" else []
    first = next(iter(evaluation.tested.values()))
    seen = len(first)
    means: list[str | tuple[str, str]] = []
    for readout, value in run.accuracy.items():
        means += [f"{READOUT_TITLES[readout]} ", (f"{value:.1f} %", f"bold {shade(value)}"), "   "]
    if evaluation.collapsed:
        means.append((f"{COLLAPSED} {len(evaluation.collapsed)} not learned   ", "bold yellow"))
    head = one_line(width, *means, (f"mean of {seen} task{'s' if seen > 1 else ''} seen", "bright_black"))
    tasks = max(moment.tasks, seen)
    learning = moment.task if run.state == "running" and moment.task >= seen else None
    return [head, *strip([*first, *[None] * (tasks - seen)], learning, width)]


def strip(values: Sequence[float | None], learning: int | None, width: int) -> Iterator[Text]:
    """Bars with percentages under them, side by side, in as few and as even rows as fit."""
    cell = CELL if len(values) * CELL <= width else NARROW_CELL
    rows = -(-len(values) // max(width // cell, 1))
    length = -(-len(values) // rows)
    for start in range(0, len(values), length):
        part = values[start : start + length]
        for line in range(STRIP_HEIGHT):
            blocks = [column((value or 0) / 100, STRIP_HEIGHT)[line] * (cell - 1) + " " for value in part]
            yield Text.assemble(*((block, shade(value or 0)) for block, value in zip(blocks, part, strict=True)))
        numbers = Text()
        for number, value in enumerate(part, start=start):
            if value is not None:
                numbers.append(f"{value:.0f}".center(cell - 1) + " ")
            elif number == learning:
                numbers.append("▸".center(cell - 1) + " ", "cyan")
            else:
                numbers.append("·".center(cell - 1) + " ", "bright_black")
        yield numbers


def loss_lines(run: Followed, width: int) -> list[Text]:
    """Each loss by name, smoothed, with its course over the run."""
    names = {name: name.replace("_", " ") for name in run.losses}
    longest = max(map(len, names.values()), default=0)
    lines = []
    for name, value in run.losses.items():
        drawn = course(run.courses[name], max(width - longest - LOSS_WIDTH - 2, 1))
        number = (f"{value:#.3g}".rjust(LOSS_WIDTH) + "  ", "bold")
        lines.append(one_line(width, f"{names[name]:<{longest}}", number, (drawn, "blue")))
    return lines


def memory_lines(run: Followed, width: int) -> list[Text]:
    """How full the memory is, and by the last evaluation how evenly classes share it."""
    if run.moment is None or run.moment.memory is None:
        return []
    held, capacity = run.moment.memory
    line = Text.assemble(bar(held / capacity, SHORT_BAR, "magenta"), f" {held:,}/{capacity:,} rows")
    counts = run.inside.get("memory_by_class", [])
    if present := [count for count in counts if count]:
        low, high = min(present), max(present)
        each = f"{low}" if low == high else f"{low}–{high}"
        classes = "classes" if len(present) > 1 else "class"
        line.append(f" · {each} in each of {len(present)} {classes} ", "bright_black")
        line.append(spark(counts, max(width - len(line), 1)), "magenta")
    return [one_line(width, line)]


def gates_lines(run: Followed, width: int) -> list[Text]:
    """Which part of the neurons is open by the last evaluation, and by layer; of many layers the emptiest are named."""
    part = run.open_part
    if part is None:
        return []
    layers = {name: is_open / neurons for name, (is_open, neurons) in run.inside["open_neurons"].items()}
    line = Text.assemble(bar(part, SHORT_BAR, "yellow"), (f" {100 * part:.0f} %", "bold"))
    if len(layers) > NAMED_LAYERS:
        line.append(" " + spark(list(layers.values()), len(layers), top=1.0), "yellow")
        name = min(layers, key=lambda each: layers[each])
        line.append(f" · least in {name}: {100 * layers[name]:.0f} %", "bright_black")
    else:
        for name, value in layers.items():
            line.append(f" · {name} {100 * value:.0f} %", "bright_black")
    return [one_line(width, line)]

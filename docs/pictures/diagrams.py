"""The pictures that explain: which data come when, and what is kept of a sample."""

from __future__ import annotations

from svg import arrow, bar, box, line, picture, tile, word

TASKS = "acd"  # colours of the first, second and third task
FIVE = "acdbe"  # colours of five tasks
HEIGHT = 110  # of one scenario


def stream_of_classes(y: float) -> list[str]:
    shapes = []
    for task, digits in enumerate(("0101", "2323", "4545")):
        x = 24 + task * 142
        shapes += [box(x, y + 26, 130, 62, line="line"), word(x + 65, y + 80, f"task {task + 1}", "quiet", "middle")]
        shapes += [tile(x + 7 + 30 * place, y + 33, each, TASKS[task]) for place, each in enumerate(digits)]
    return shapes


def stream_of_domains(y: float) -> list[str]:
    shapes = []
    for task, angle in enumerate((0, 40, 80)):
        x = 24 + task * 142
        told = f"task {task + 1}: turned {angle}°" if angle else "task 1: upright"
        shapes += [box(x, y + 26, 130, 62), word(x + 65, y + 80, told, "quiet", "middle")]
        shapes += [tile(x + 7 + 30 * place, y + 33, each, TASKS[task], angle) for place, each in enumerate("3074")]
    return shapes


def stream_without_tasks(y: float) -> list[str]:
    shapes = [box(24, y + 26, 414, 62)]
    for place, each in enumerate("0101121223234"):
        shapes.append(tile(31 + 31 * place, y + 33, each, "b", 8 * place))
    return [*shapes, word(231, y + 80, "no boundaries, each sample once", "quiet", "middle")]


def question(y: float, digit: str, colour: str, angle: float, told: str, choices: str) -> list[str]:
    return [
        arrow(446, y + 57, 474, y + 57),
        box(482, y + 26, 254, 62),
        tile(492, y + 44, digit, colour, angle),
        word(530, y + 51, told, "quiet"),
        word(530, y + 72, choices),
    ]


def scenarios() -> str:
    rows = [
        (
            "Class-IL: new classes come, task by task",
            stream_of_classes,
            ("3", "c", 0, "no hint", "0, 1, 2, 3, 4 or 5?"),
        ),
        (
            "Task-IL: the same stream, an easier question",
            stream_of_classes,
            ("3", "c", 0, "“it is of task 2”", "2 or 3?"),
        ),
        ("Domain-IL: the same classes, in another form", stream_of_domains, ("3", "c", 40, "no hint", "0, 1, 2 … 9?")),
        (
            "GCL: everything drifts, nothing is announced",
            stream_without_tasks,
            ("1", "b", 40, "no hint", "0, 1, 2 … 8?"),
        ),
    ]
    shapes = [word(24, 28, "what is learned, in time →", "quiet"), word(482, 28, "what is asked in the test", "quiet")]
    for place, (title, stream, asked) in enumerate(rows):
        y = 36 + HEIGHT * place
        shapes += [word(24, y + 16, title, "title"), *stream(y), *question(y, *asked)]
    return picture(760, 36 + HEIGHT * len(rows) - 6, "The four scenarios of continual learning", shapes)


def bars(x: float, y: float, heights: tuple[int, ...], colour: str) -> list[str]:
    return [line([(x + 8 * place, y), (x + 8 * place, y - each)], colour, 5) for place, each in enumerate(heights)]


def kept() -> str:
    """What the memory holds of a sample, and who replays which part of it."""
    parts = [("input", 90), ("label", 200), ("logits", 320), ("features", 450)]
    shapes = [word(24, 28, "One sample in the memory, as it was when it came", "title"), box(76, 42, 490, 84)]
    shapes += [word(x, 62, name, "quiet") for name, x in parts]
    shapes += [tile(90, 76, "3", "c", size=36), word(200, 100, "“three”")]
    shapes += bars(324, 114, (6, 10, 16, 38, 9, 4, 7, 12), "c") + bars(
        454, 114, (30, 6, 22, 4, 4, 34, 12, 5, 26, 4), "d"
    )
    rows = [
        ("ER", ("input", "label"), "the label stays right"),
        ("DER", ("input", "logits"), "the logits stay as they were"),
        ("DER++", ("input", "label", "logits"), "both"),
        ("SNCL", ("input", "label", "logits", "features"), "all that, and hidden responses stay"),
    ]
    shapes.append(word(590, 84, "replayed, so that"))
    shapes.append(word(590, 102, "for this sample …"))
    for place, (name, used, aim) in enumerate(rows):
        y = 156 + 30 * place
        shapes += [word(24, y, name, "title"), word(590, y, aim, "quiet")]
        for part, x in parts:
            if part in used:
                shapes.append(line([(x, y - 4), (x + 84, y - 4)], "c" if part != "features" else "d", 6))
    return picture(830, 262, "What the memory keeps of a sample, and what each method replays", shapes)


def step() -> list[str]:
    """A training step: what comes is joined by what is drawn."""
    shapes = [word(24, 28, "A training step with replay", "title")]
    shapes += [tile(24 + 32 * place, 50, each, "d") for place, each in enumerate("4545")]
    shapes += [word(24, 96, "new batch", "quiet"), arrow(158, 63, 288, 63), box(296, 44, 104, 150)]
    shapes += [word(348, 124, "network", "title", "middle")]
    shapes += [arrow(60, 104, 60, 186), word(70, 140, "sample n of the stream", "quiet")]
    shapes += [word(70, 157, "enters with chance M / n", "quiet"), box(24, 194, 138, 68, line="b")]
    for place, (each, colour) in enumerate(zip("01230213", "aaccacac", strict=True)):
        shapes.append(tile(33 + 31 * (place % 4), 201 + 29 * (place // 4), each, colour, size=25))
    shapes += [word(24, 282, "memory: M samples of the past", "quiet"), line([(168, 228), (348, 228)], "quiet", 1.5)]
    shapes += [arrow(348, 228, 348, 200), word(178, 220, "some, drawn at random", "quiet")]
    return shapes


def held(by_task: list[list[int]]) -> list[str]:
    """How many samples of each task the memory held after each task."""
    shapes = [word(450, 28, "What a memory of 100 held", "title"), word(450, 282, "after task", "quiet")]
    for place, counts in enumerate(by_task):
        x, y = 522 + 46 * place, 262.0
        shapes.append(word(x + 16, 282, str(place + 1), "quiet", "middle"))
        for task, count in enumerate(counts):
            if count:
                y -= 2.1 * count
                shapes += [bar(x, y, 32, 2.1 * count, FIVE[task], 0.3), line([(x, y), (x + 32, y)], FIVE[task], 1.5)]
                shapes.append(word(x + 16, y + 1.05 * count + 5, str(count), "", "middle"))
    digits = [f"{2 * task} {2 * task + 1}" for task in range(len(by_task))]
    shapes.append(word(450, 52, "of digits", "quiet"))
    for task, each in enumerate(digits):
        shapes += [bar(450, 62 + 22 * task, 12, 12, FIVE[task], 0.5), word(468, 73 + 22 * task, each, "quiet")]
    return shapes


def replay(by_task: list[list[int]]) -> str:
    title = "A training step with replay, and what the memory held after each task"
    return picture(770, 296, title, [*step(), *held(by_task)])

"""The pictures of what was measured: accuracy while tasks are learned, and neurons in reserve."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

from svg import band, dot, line, picture, word

Matrix = list[list[float]]
COLOURS = {"sgd": "a", "er": "b", "sncl": "c"}
TITLES = {"sgd": "SGD", "er": "ER", "sncl": "SNCL"}
LEFT, TOP, WIDE, HIGH = 44, 60, 290, 190  # of one chart


def first_task(matrix: Matrix) -> list[float]:
    return [row[0] for row in matrix]


def seen_so_far(matrix: Matrix) -> list[float]:
    return [mean(row[: task + 1]) for task, row in enumerate(matrix)]


def axes(x: float, title: str, tasks: int) -> list[str]:
    shapes = [word(x, 34, title, "title")]
    for value in range(0, 101, 25):
        y = TOP + HIGH * (1 - value / 100)
        shapes += [line([(x, y), (x + WIDE, y)], "line", 0.7), word(x - 8, y + 4, str(value), "quiet", "end")]
    for task in range(tasks):
        told = f"{2 * task} {2 * task + 1}"
        shapes.append(word(x + WIDE * task / (tasks - 1), TOP + HIGH + 20, told, "quiet", "middle"))
    return [*shapes, word(x + WIDE / 2, TOP + HIGH + 40, "after learning the digits", "quiet", "middle")]


def curve(x: float, seeds: list[list[float]], name: str) -> list[str]:
    """The mean over seeds, with a band from the lowest to the highest, and the last value."""

    def at(values: Callable[[int], float]) -> list[tuple[float, float]]:
        last = len(seeds[0]) - 1
        return [(x + WIDE * task / last, TOP + HIGH * (1 - values(task) / 100)) for task in range(last + 1)]

    low, high = at(lambda task: min(each[task] for each in seeds)), at(lambda task: max(each[task] for each in seeds))
    middle = at(lambda task: mean(each[task] for each in seeds))
    end = mean(each[-1] for each in seeds)
    colour = COLOURS[name]
    shapes = [band([*low, *reversed(high)], colour), line(middle, colour, 2.5)]
    shapes += [dot(*point, 3, colour) for point in middle]
    y = middle[-1][1] + (11 if name == "er" else 1 if name == "sncl" else 4)
    return [*shapes, word(x + WIDE + 10, y, f"{TITLES[name]} {end:.0f} %", colour=colour)]


def forgetting(runs: dict[str, Any]) -> str:
    tasks = len(runs["sgd"]["matrices"][0])
    shapes = []
    for place, (title, values) in enumerate(
        (("Accuracy on the digits 0 and 1, %", first_task), ("Accuracy on all digits seen so far, %", seen_so_far))
    ):
        x = LEFT + place * (WIDE + 120)
        shapes += axes(x, title, tasks)
        for name, run in runs.items():
            shapes += curve(x, [values(matrix) for matrix in run["matrices"]], name)
    return picture(2 * WIDE + 256, TOP + HIGH + 56, "Accuracy of SGD, ER and SNCL while five tasks are learned", shapes)


def gates(opened: list[dict[str, list[int]]], shown: tuple[int, ...] = (0, 1, 3, 9)) -> str:
    """Every hidden neuron as a dot after some of the tasks; they are opened in their order."""
    shapes = []
    for column, task in enumerate(shown):
        x = 100 + 160 * column
        shapes.append(word(x - 4, 30, f"after task {task + 1}", "title"))
        for row, (count, total) in enumerate(opened[task].values()):
            y = 52 + 150 * row
            for place in range(total):
                filled = place < count
                shapes.append(
                    dot(x + 12 * (place % 10), y + 12 * (place // 10), 4.2, "c" if filled else "line", filled)
                )
            shapes.append(word(x - 4, y + 128, f"{count} of {total} open", "quiet"))
    shapes += [word(16, 104 + 150 * row, f"layer {row + 1}", "quiet") for row in range(len(opened[0]))]
    return picture(740, 350, "Open neurons of two hidden layers after the tasks 1, 2, 4 and 10", shapes)

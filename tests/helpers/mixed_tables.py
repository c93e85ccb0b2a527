"""A table as people have them: numbers with gaps, truth values, dates, colours, ids, and new colours later."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"size": "number", "ripe": "boolean", "picked": "date", "colour": "category", "weight": "number"}
LABELS = ("apple", "fig", "kiwi", "plum")
COLOURS = {"apple": "red green", "fig": "blue brown", "kiwi": "brown green", "plum": "blue violet"}


def fruit(rows: int = 160, seed: int = 0) -> list[dict[str, Any]]:
    """Rows in a mixed order; the colours of the later classes are not those of the first."""
    numbers = np.random.default_rng(seed)
    found = []
    for number in range(rows):
        label = LABELS[int(numbers.integers(4))]
        place = LABELS.index(label)
        gaps = numbers.random(4) < 0.15
        found.append(
            {
                "row": f"f-{number:05}",
                "size": None if gaps[0] else float(np.round(place + numbers.normal(), 3)),
                "ripe": None if gaps[1] else bool(numbers.integers(2)),
                "picked": None if gaps[2] else datetime(2023, 1, 1) + timedelta(hours=int(numbers.integers(20_000))),
                "colour": None if gaps[3] else str(numbers.choice(COLOURS[label].split())),
                "weight": float(np.round(20 * place + 9 * numbers.normal(), 3)),
                "kind": label,
            }
        )
    return found


def save_fruit(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As a CSV file: empty cells are missing."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(rows[0])
        lines.writerows(["" if value is None else value for value in row.values()] for row in rows)
    return path

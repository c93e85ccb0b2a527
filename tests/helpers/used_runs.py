"""Short runs on the user's data, to be used afterwards: predicted with, loaded, exported."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from user_files import HEADER, Rows, flowers, read_data, save_table

from sncl.runs.perform import perform
from sncl.runs.plan import plan

TEST_ROWS = 30


def train_on(stream: str | Path, folder: Path, method: str = "er", memory: int = 8, **settings: str) -> Path:
    """The folder of a run of one epoch on a small network."""
    data = read_data(stream).user_data
    chosen = plan(
        data.name, method, memory=memory, epochs=1, device="cpu", settings={"width": "8"} | settings, user_data=data
    )
    perform(chosen, folder)
    return folder


def gappy_flowers() -> Rows:
    """Flowers with missing numbers and texts, and a column of 10^9 and a bit."""
    rows = flowers()
    for number, row in enumerate(rows):
        row[1] = "" if number % 7 == 0 else row[1]
        row[3] += 1e9
        row[4] = "" if number % 11 == 0 else row[4]
    return rows


def save_split(folder: Path, rows: Rows, header: list[str] | None = None) -> Path:
    """A folder with train.csv and test.csv."""
    save_table(folder / "train.csv", rows[TEST_ROWS:], header or HEADER)
    save_table(folder / "test.csv", rows[:TEST_ROWS], header or HEADER)
    return folder


def numbers_only(rows: Rows) -> Rows:
    """Flowers without the text and the year."""
    return [[*row[:4], row[6]] for row in rows]


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def float_images(rows: int = 60) -> dict[str, Any]:
    """Grey images of floats of two classes, no two alike."""
    numbers = np.random.default_rng(0)
    y = np.arange(rows) % 2
    x = numbers.normal(size=(rows, 6, 5)) * 50 + 100 * y[:, None, None]
    return {"x": x.astype(np.float32), "y": np.array(["left", "right"])[y]}

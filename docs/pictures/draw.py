"""Draw the pictures of docs/concepts.md into docs/images, from numbers.json: ``python docs/pictures/draw.py``."""

from __future__ import annotations

import json
from pathlib import Path

import curves
import diagrams

NUMBERS = Path(__file__).with_name("numbers.json")
IMAGES = Path(__file__).parents[1] / "images"


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return {
        "forgetting.svg": curves.forgetting(numbers["forgetting"]),
        "gates.svg": curves.gates(numbers["gates"]["open"]),
        "kept.svg": diagrams.kept(),
        "replay.svg": diagrams.replay(numbers["memory"]["by_task"]),
        "scenarios.svg": diagrams.scenarios(),
    }


if __name__ == "__main__":
    for name, text in pictures().items():
        (IMAGES / name).write_text(text, encoding="utf-8")

"""The picture of the demo, and whether one could be drawn at all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sncl.errors import SnclError, lacking
from sncl.runs.result import Result
from sncl.runs.summary import by_seeds


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before the runs and not after them."""
    if path.suffix not in (".png", ".svg"):
        raise SnclError(f"a picture is a .png or .svg file, not {path}")
    if not path.parent.is_dir():
        raise SnclError(f"the folder of {path} does not exist")
    if find_spec("matplotlib") is None:
        raise lacking("drawing", "matplotlib")


def draw(results: Sequence[Result], path: Path) -> None:
    """The average accuracy over the tasks seen so far, mean and spread over seeds, one panel for each stream."""
    import matplotlib

    matplotlib.use("Agg")
    from sncl.interactive.plots import accuracy_plot

    accuracy_plot(by_seeds(results)).savefig(path, dpi=150)

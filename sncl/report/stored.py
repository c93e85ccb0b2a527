"""What lies in a run folder beside its numbers.

The last checkpoint has the images and losses the memory holds, and how far each gate is open; an analysis may have left
its accuracy with further neurons closed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.networks.gating.gate import log_ratio
from sncl.report.collect import FinishedRun
from sncl.runs.folders import Notify, shown
from sncl.runs.sweep import SWEEP, StoredSweep, read_sweep
from sncl.tensors.fields import Fields, within
from sncl.training.checkpoint import read_checkpoint
from sncl.training.folder import CHECKPOINT

UNSHOWABLE = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)  # of wrong tensors
MOST_IMAGES = 200
SHEET_COLUMNS = 20
SHEET_SIDE = 40  # pixels of an image on the sheet; small ones are enlarged in whole steps


class Sheet(NamedTuple):
    """Images of the memory, sorted by class, as one PNG: its data URI, and how many rows of each class are on it."""

    uri: str
    width: int
    height: int
    counts: dict[int, int]
    stored: int


class Stored(NamedTuple):
    """What is in a checkpoint; each empty or None where the method has no such thing."""

    losses: list[float]
    log_lambda: dict[str, list[float]]
    sheet: Sheet | None


def read_stored(run: FinishedRun, note: Notify) -> Stored:
    """Look into the checkpoint of a run; one that is damaged or gone leaves these parts out, with a note."""
    path = run.folder / CHECKPOINT
    if not path.exists():
        note(f"{shown(run.folder)} has no checkpoint, so its memory and gates are not shown")
        return Stored([], {}, None)
    try:
        return look_into(read_checkpoint(path)[0], run)
    except (SnclError, *UNSHOWABLE):
        note(f"the checkpoint of {shown(run.folder)} is damaged, so its memory and gates are not shown")
        return Stored([], {}, None)


def read_sweeps(runs: Iterable[FinishedRun], note: Notify) -> dict[str, StoredSweep]:
    """What ``sncl analyze sparsity`` has left of these runs, by folder; a damaged file is left out, with a note."""
    found = {}
    for run in runs:
        try:
            sweep = read_sweep(run.folder, run.experiment)
        except SnclError:
            note(f"{SWEEP} of {shown(run.folder)} is damaged or about another run, and not shown")
            continue
        if sweep is not None:
            found[str(run.folder)] = sweep
    return found


def look_into(tensors: Fields, run: FinishedRun) -> Stored:
    filled = int(run.evaluations[-1].get("memory", 0)) if run.evaluations else 0
    rows = {name: stored[:filled] for name, stored in within("memory/rows", tensors).items()}
    losses = rows["loss"].double().flatten().tolist() if "loss" in rows else []
    return Stored(losses, gate_values(tensors), sheet(rows))


def gate_values(tensors: Fields) -> dict[str, list[float]]:
    r"""\log \lambda of every neuron of the network that predicts, by layer."""
    network = within("network", tensors) | within("ema", tensors)
    found = {}
    for name, value in network.items():
        gate, _, field = name.rpartition(".")
        if field == "log_variance" and f"{gate}.mu" in network:
            values = log_ratio(network[f"{gate}.mu"], value)
            found[gate.rpartition(".")[0]] = [round(each, 3) for each in values.double().tolist()]
    return dict(sorted(found.items()))


def sheet(rows: Fields) -> Sheet | None:
    """The images of these rows side by side, evenly chosen where there are too many."""
    x, y = rows.get("x"), rows.get("y")
    if x is None or y is None or len(x) == 0 or x.dtype != torch.uint8 or x.dim() != 4 or x.shape[1] not in (1, 3):
        return None
    order = y.argsort(stable=True)
    order = order[:: -(-len(order) // MOST_IMAGES)]
    labels = y[order].tolist()
    picture = tiled(x[order])
    uri = "data:image/png;base64," + base64.b64encode(png(picture)).decode()
    counts = {label: labels.count(label) for label in dict.fromkeys(labels)}
    return Sheet(uri, picture.shape[1], picture.shape[0], counts, len(x))


def tiled(x: Tensor) -> Tensor:
    """uint8 [images, channels, height, width] -> one picture [height, width, 3] with a margin around each."""
    x = x.expand(-1, 3, -1, -1)
    enlarged = max(1, SHEET_SIDE // x.shape[-1])
    x = x.repeat_interleave(enlarged, 2).repeat_interleave(enlarged, 3)
    columns = min(SHEET_COLUMNS, len(x))
    lines = -(-len(x) // columns)
    height, width = x.shape[2] + 2, x.shape[3] + 2
    picture = torch.full((lines * height, columns * width, 3), 128, dtype=torch.uint8)
    for number, image in enumerate(x):
        top, left = number // columns * height + 1, number % columns * width + 1
        picture[top : top + height - 2, left : left + width - 2] = image.permute(1, 2, 0)
    return picture


def png(picture: Tensor) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture.numpy()).save(file, "PNG", optimize=True)
    return file.getvalue()

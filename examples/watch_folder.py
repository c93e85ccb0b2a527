"""Learn from a folder that another process keeps filling, and go on after any restart.

    python examples/watch_folder.py inbox --classes 10 --snapshot learner.safetensors

Every file is a batch, taken in the order of the names:

- `.npz` with the arrays `x` [samples, features] and, where there are labels, `y` [samples];
- `.csv` without a header: numbers, the label in the last column, which is empty for samples without one.

Whoever writes a file gives it its name when it is complete (write `.part`, then rename), and a name that sorts behind
those before it, such as a number or a time. Files are only read; what has been learned may be deleted.

The snapshot holds the learner and the name of the last file. After a crash the files behind it are read again, so the
result is the same as without the crash, bit for bit. Another --every writes it less often: a file is then predicted
again, but still learned once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import sncl
from sncl.training.follow import Position

KINDS = (".npz", ".csv")


def read(path: Path) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Inputs and labels of a file; labels that are missing are NaN, or None if there is none at all."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            y = torch.from_numpy(arrays["y"]) if "y" in arrays else None
            return torch.from_numpy(arrays["x"]).float(), y
    table = torch.from_numpy(np.genfromtxt(path, delimiter=",", ndmin=2))
    return table[:, :-1].float(), table[:, -1]


def waiting(folder: Path, behind: str) -> list[Path]:
    """The files whose names sort behind that one, in order."""
    return sorted(path for path in folder.iterdir() if path.suffix in KINDS and path.name > behind)


def batches(
    folder: Path, position: Position, pause: float, patience: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor | None, str]]:
    """The files behind the position as they come, until none has come for ``patience`` seconds."""
    last, idle_since = position.token or "", time.monotonic()
    while time.monotonic() - idle_since < patience:
        for path in waiting(folder, last):
            yield *read(path), path.name
            last, idle_since = path.name, time.monotonic()
        time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files arrive")
    parser.add_argument("--classes", type=int, required=True, help="how many classes there are")
    parser.add_argument("--snapshot", type=Path, default=Path("learner.safetensors"), help="where the learner is kept")
    parser.add_argument("--every", type=int, default=1, help="files between snapshots; 1: nothing is ever lost")
    parser.add_argument("--method", default="sncl")
    parser.add_argument("--memory", type=int, default=500, help="samples that may be kept")
    parser.add_argument("--width", type=int, default=100, help="of the two hidden layers")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two looks at the folder")
    parser.add_argument(
        "--patience", type=float, default=float("inf"), help="end when nothing came for so many seconds"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as Ctrl-C: what is learned is stored on the way out

    while not (there := waiting(options.folder, "")):
        time.sleep(options.pause)
    features = read(there[0])[0].shape[1]
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(features, options.width),
        torch.nn.ReLU(),
        torch.nn.Linear(options.width, options.width),
        torch.nn.ReLU(),
        torch.nn.Linear(options.width, options.classes),
    )
    learner = sncl.Learner(net, options.method, memory=options.memory)
    answers = sncl.follow(
        learner,
        lambda position: batches(options.folder, position, options.pause, options.patience),
        snapshot=options.snapshot,
        every=options.every,
    )
    for answer in answers:
        score = "no labels yet" if answer.recent is None else f"{100 * answer.recent:.1f} % right lately"
        print(f"{answer.position.token}: {len(answer.predicted)} samples, {score}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except sncl.SnclError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        pass

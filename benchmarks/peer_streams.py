"""The streams of peers.py: tasks in turn, and a test set with all classes. Numbers are about 0 with deviation 1.

NumPy only, so that what is measured of a peer is the peer.
"""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLASSES = 10
FEATURES, CLUSTERS, SPREAD = 30, 2, 0.6  # of the table: clusters of a class, and the deviation of their centres
RAREST = 0.2  # samples of the rarest class, as a part of those of the most frequent one
TESTED = 100  # rows of a class in the table's test set
MNIST_ROWS = 2000  # of a task
FACTS = ("name", "text", "batch", "epochs", "online")


@dataclass
class Stream:
    """``batch`` samples are learned at a time, each task ``epochs`` times; ``online``: each is predicted before."""

    name: str
    text: str
    batch: int
    epochs: int
    tasks: list[tuple[np.ndarray, np.ndarray]]
    test: tuple[np.ndarray, np.ndarray]
    online: bool

    def save(self, path: Path) -> None:
        tasks = {
            f"{name}{number}": value
            for number, task in enumerate(self.tasks)
            for name, value in zip("xy", task, strict=True)
        }
        facts = {name: getattr(self, name) for name in FACTS}
        np.savez(path, test_x=self.test[0], test_y=self.test[1], **tasks, **facts)

    @classmethod
    def read(cls, path: Path) -> "Stream":
        with np.load(path) as file:
            count = sum(name.startswith("x") for name in file)
            facts = {name: file[name].item() for name in FACTS}
            tasks = [(file[f"x{number}"], file[f"y{number}"]) for number in range(count)]
            return cls(**facts, tasks=tasks, test=(file["test_x"], file["test_y"]))


def table(seed: int, rows: int, batch: int) -> Stream:
    """Clusters of points, two classes after two classes, of very different sizes, in one pass."""
    random = np.random.default_rng(seed)
    centres = SPREAD * random.standard_normal((CLASSES, CLUSTERS, FEATURES))

    def some(labels: np.ndarray) -> np.ndarray:
        points = centres[labels, random.integers(CLUSTERS, size=len(labels))]
        points = points + random.standard_normal(points.shape)
        return (points / np.hypot(1, SPREAD)).astype(np.float32)

    sizes = random.permutation(RAREST ** (np.arange(CLASSES) / (CLASSES - 1)))
    sizes = (rows * sizes / sizes.sum()).round().astype(int)
    tasks = []
    for first in range(0, CLASSES, 2):
        labels = random.permutation(np.repeat([first, first + 1], sizes[first : first + 2]))
        tasks.append((some(labels), labels))
    test = np.repeat(np.arange(CLASSES), TESTED)
    text = f"{rows:,} rows of {FEATURES} features, {'one at a time' if batch == 1 else f'in batches of {batch}'}"
    return Stream("rows" if batch == 1 else "batches", text, batch, 1, tasks, (some(test), test), online=True)


def digits(seed: int) -> Stream:
    """The digits of scikit-learn, two after two."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = ((x - x.mean()) / x.std()).astype(np.float32)[order], y[order]
    learned = len(y) * 4 // 5
    tasks = two_by_two(x[:learned], y[:learned])
    text = f"{learned:,} images of 8 x 8, three passes over each task, in batches of 10"
    return Stream("digits", text, 10, 3, tasks, (x[learned:], y[learned:]), online=False)


def mnist(seed: int) -> Stream | None:
    """A part of MNIST, two digits after two, if it is in $SNCL_DATA."""
    folder = Path(os.environ.get("SNCL_DATA", "")) / "MNIST" / "raw"
    files = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    if not all((folder / name).exists() or (folder / f"{name}.gz").exists() for name in files):
        return None
    images, labels, test_x, test_y = (read_idx(folder / name) for name in files)
    mean, deviation = 255 * 0.1307, 255 * 0.3081
    images, test_x = (((x.reshape(len(x), -1) - mean) / deviation).astype(np.float32) for x in (images, test_x))
    order = np.random.default_rng(seed).permutation(len(labels))
    tasks = [(x[:MNIST_ROWS], y[:MNIST_ROWS]) for x, y in two_by_two(images[order], labels[order])]
    text = f"{MNIST_ROWS:,} images of 28 x 28 for each of five tasks, one pass, in batches of 32"
    return Stream("mnist", text, 32, 1, tasks, (test_x, test_y), online=False)


def two_by_two(x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    parts = [(y // 2) == task for task in range(CLASSES // 2)]
    return [(x[part], y[part].astype(np.int64)) for part in parts]


def read_idx(path: Path) -> np.ndarray:
    raw = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
    sizes = np.frombuffer(raw, ">i4", raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(sizes)

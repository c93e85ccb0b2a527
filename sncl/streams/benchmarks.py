"""The benchmark streams by name: data set, kind, size and the usual settings to run each with.

Four kinds: ``seq`` cuts the classes into tasks; ``perm`` and ``rot`` show all classes in every task under another
pixel permutation or rotation; ``360`` turns two digits at a time with no boundaries (see :mod:`sncl.streams.general`).
The user's data (:mod:`sncl.streams.user.data`) are cut by classes as well, by ``domain``, or not at all (``order``: one
pass in file order). :mod:`sncl.streams.build` makes the streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sncl.errors import SnclError, letters, nearest, no_such
from sncl.streams.augmentation import Strong
from sncl.streams.transforms import CropFlip, Identity, Transform, Unit
from sncl.streams.user.recognise import SUFFIXES
from sncl.streams.user.spec import FORMS

if TYPE_CHECKING:
    from sncl.streams.stream import Scenario
    from sncl.streams.user.identity import UserData

Kind = Literal["seq", "perm", "rot", "360", "domain", "order"]
SCENARIOS: dict[Kind, Scenario] = {
    "seq": "class-il",
    "perm": "domain-il",
    "rot": "domain-il",
    "360": "general",
    "domain": "domain-il",
    "order": "general",
}
WORDS = {  # of names elsewhere, and of ours
    "split": "seq",
    "sequential": "seq",
    "classincremental": "seq",
    "permuted": "perm",
    "permutation": "perm",
    "rotated": "rot",
    "rotation": "rot",
    "rotating": "rot",
    "continual": "",
}
AUGMENTATIONS = ("none", "crop-flip", "strong")


AUGMENTING: dict[str, type[CropFlip]] = {"crop-flip": CropFlip, "strong": Strong}


@dataclass(frozen=True)
class Benchmark:
    """What defines a benchmark apart from the seed, and the usual settings to run it with."""

    dataset: str
    kind: Kind
    transform: Transform
    tasks: int
    classes_per_task: int
    batch_size: int
    epochs: int
    network: Literal["mlp", "resnet18"]
    description: str

    @property
    def once(self) -> bool:
        """Whether the stream is seen once, without boundaries."""
        return SCENARIOS[self.kind] == "general"


CIFAR_TRANSFORM = CropFlip(4, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615))
TINY_TRANSFORM = CropFlip(4, mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821))

STREAMS: dict[str, Benchmark] = {
    "seq-cifar10": Benchmark(
        "cifar10",
        "seq",
        CIFAR_TRANSFORM,
        5,
        2,
        32,
        50,
        "resnet18",
        "CIFAR-10, 5 tasks of 2 classes (class- and task-IL)",
    ),
    "seq-tinyimagenet": Benchmark(
        "tiny-imagenet", "seq", TINY_TRANSFORM, 10, 20, 32, 100, "resnet18", "Tiny ImageNet, 10 tasks of 20 classes"
    ),
    "perm-mnist": Benchmark(
        "mnist", "perm", Unit(), 20, 10, 128, 1, "mlp", "MNIST, 20 tasks, each under its own permutation of the pixels"
    ),
    "rot-mnist": Benchmark(
        "mnist", "rot", Unit(), 20, 10, 128, 1, "mlp", "MNIST, 20 tasks, each turned by its own angle in [0, 180)"
    ),
    "mnist-360": Benchmark(
        "mnist", "360", Unit(), 1, 9, 16, 1, "mlp", "MNIST 0..8, two digits at a time, slowly turning, no boundaries"
    ),
    "seq-mnist": Benchmark("mnist", "seq", Unit(), 5, 2, 10, 1, "mlp", "MNIST, 5 tasks of 2 classes"),
    "seq-digits": Benchmark("digits", "seq", Unit(), 5, 2, 16, 5, "mlp", "8 x 8 digits, 5 tasks of 2 classes"),
    "perm-digits": Benchmark(
        "digits", "perm", Unit(), 10, 10, 16, 3, "mlp", "8 x 8 digits, 10 tasks, each under its own permutation"
    ),
    "rot-digits": Benchmark(
        "digits", "rot", Unit(), 10, 10, 16, 3, "mlp", "8 x 8 digits, 10 tasks, each turned by its own angle"
    ),
    "digits-360": Benchmark(
        "digits", "360", Unit(), 1, 9, 4, 1, "mlp", "8 x 8 digits 0..8, two at a time, slowly turning, no boundaries"
    ),
}


def stream_name(name: str) -> str:
    """The name as it stands in the table, however it is capitalised; an error that suggests one where there is none."""
    found = name if name in STREAMS else name.lower()
    if found not in STREAMS:
        raise no_such("stream", name, (*STREAMS, *FORMS), near_streams(name))
    return found


def near_streams(name: str) -> list[str]:
    """What may have been meant by a name: a stream as the field calls it, or a file whose suffix was left out."""
    if files := [f"{name}{suffix}" for suffix in SUFFIXES if Path(f"{name}{suffix}").is_file()]:
        return files
    word = letters(name)
    for other, ours in WORDS.items():
        word = word.replace(other, ours)
    return nearest(word, STREAMS)


def named(name: str) -> Benchmark:
    """The benchmark of that name, or an error that suggests one."""
    return STREAMS[stream_name(name)]


def user_benchmark(data: UserData, split: str | None = None, augment: str = "none") -> Benchmark:
    """The usual settings for the user's data; by classes two of them a task, the last task with what is left."""
    if augment not in AUGMENTATIONS or (augment != "none" and not data.pixels):
        allowed = ", ".join(AUGMENTATIONS) if data.pixels else "none: there are no images of bytes"
        raise SnclError(f"`augment={augment}` does not fit {data.name}; allowed is {allowed}")
    kinds: dict[str, Kind] = {"classes": "seq", "domain": "domain", "none": "order"}
    kind = kinds[data.cut]
    together = 2 if data.classes > 2 else 1
    plain: Transform = Unit() if data.pixels else Identity()
    benchmark = Benchmark(
        dataset=data.name,
        kind=kind,
        transform=plain if augment == "none" else AUGMENTING[augment](4, (0.0,), (1.0,)),
        tasks={"seq": -(-data.classes // together), "domain": data.domains, "order": 1}[kind],
        classes_per_task=together if kind == "seq" else data.classes,
        batch_size=32,
        epochs=1 if kind == "order" else 5 if data.network == "mlp" else 10,
        network=data.network,
        description=data.name,
    )
    return benchmark if split is None else resplit(data.name, benchmark, split, data.classes)


def augmentation(benchmark: Benchmark) -> str:
    """How the images of a benchmark are augmented; nothing where they are not."""
    return next((name for name, kind in AUGMENTING.items() if type(benchmark.transform) is kind), "")


def augmented(name: str, benchmark: Benchmark, augment: str) -> Benchmark:
    """The benchmark with its images augmented in another way, which leaves tests and normalisation as they are."""
    usual = benchmark.transform
    if not isinstance(usual, CropFlip):
        raise SnclError(f"`augment={augment}` does not fit {name}, whose samples are not augmented; leave it out")
    if augment not in AUGMENTING:
        raise SnclError(f"`augment={augment}` does not fit {name}; allowed is {', '.join(AUGMENTING)}")
    return replace(benchmark, transform=AUGMENTING[augment](usual.padding, usual.mean, usual.std))


def resplit(name: str, benchmark: Benchmark, split: str, classes: int | None = None) -> Benchmark:
    """The benchmark with so many tasks of so many classes; of ``classes``, where the last task may have fewer."""
    parts = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", split)
    if benchmark.kind != "seq" or parts is None:
        raise SnclError(
            f"the `split` {split!r} does not fit the stream '{name}': a sequential stream takes TASKSxCLASSES, like 5x2"
        )
    tasks, together = int(parts[1]), int(parts[2])
    if classes is not None and (tasks - 1) * together >= classes:
        raise SnclError(
            f"`split={split}` wants {tasks * together} classes, but {name} has {classes}: for {together} classes a "
            f"task say {-(-classes // together)}x{together}"
        )
    return replace(benchmark, tasks=tasks, classes_per_task=together)

"""How raw samples become what a learner takes, as plain data that is kept with a run.

Columns of a table are encoded and standardised, arrays and images get the type and shape that the run learned from.
What follows, from stored samples to the network, is the learner's :class:`Transform`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.augmentation import Strong
from sncl.streams.scale import FixedScale
from sncl.streams.transforms import CropFlip, Identity, Transform, Unit
from sncl.streams.user.arrays import as_inputs
from sncl.streams.user.images import decode_like
from sncl.streams.user.listing import as_strings
from sncl.tables import TableEncoder, columns_of
from sncl.tables.columns import some

if TYPE_CHECKING:
    from sncl.streams.stream import Stream

SourceForm = Literal["table", "npz", "folder", "benchmark"]
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """From raw samples to the inputs of a learner, and the names of its classes.

    ``shape`` is that of one input, a byte for each pixel where ``pixels``, else float32. ``groups`` are the classes of
    each task. Of a table, ``encoder`` makes numbers of its columns, among which are neither ``target`` nor ``domain``;
    ``scale`` standardises numbers. Images are resized to ``shape`` where ``resize``, else they must have it.
    ``fingerprint`` is that of the data the run was made with.
    """

    form: SourceForm
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    pixels: bool
    transform: Transform
    groups: tuple[tuple[int, ...], ...]
    fingerprint: str
    task_names: tuple[str, ...] = ()
    scale: FixedScale | None = None
    encoder: TableEncoder | None = None
    target: str | None = None
    domain: str | None = None
    resize: bool = False

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def inputs(self, raw: Any) -> Tensor:
        """What a learner takes, of columns of a table, of arrays, or of the paths of image files."""
        if self.encoder is not None:
            x = torch.from_numpy(self.encoder.encode(self.columns(raw)))
        elif self.pixels and _are_paths(raw):
            x = torch.from_numpy(decode_like(raw, self._image_shape(), self.resize))
        else:
            x = self._typed(as_inputs(np.asarray(raw), "the inputs"))
        if tuple(x.shape[1:]) != self.shape:
            raise SnclError(
                f"a row has the shape {list(self.shape)} in this model, and here it has {list(x.shape[1:])}"
            )
        return x if self.scale is None else self.scale(x)

    def encoded(self, raw: Any) -> Tensor:
        """Numbers before they are standardised, float64; images as :meth:`inputs` has them."""
        return replace(self, scale=None).inputs(raw)

    def columns(self, raw: Any) -> dict[str, Any]:
        """The columns of a table that are inputs, of a dictionary, a frame, an array or a list of dictionaries."""
        assert self.encoder is not None
        found = columns_of(raw, list(self.encoder.columns))
        return {name: column for name, column in found.items() if name not in (self.target, self.domain)}

    def update(self, raw: Any) -> None:
        """Learn from rows of a table: a category that was never seen takes a free place. Nothing else changes."""
        if self.encoder is not None:
            self.encoder.update(self.columns(raw))

    def labels(self, names: Any) -> Tensor:
        """Classes by their names, as a learner takes them."""
        index = {name: number for number, name in enumerate(self.class_names)}
        given = as_strings(np.asarray(names), "labels").tolist()
        unknown = [name for name in given if name not in index]
        if unknown:
            raise SnclError(f"there is no class {unknown[0]!r} in this model; its classes are {some(index, 20)}")
        return torch.tensor([index[name] for name in given], dtype=torch.int64)

    def _image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.shape
        return channels, height, width

    def _typed(self, x: Tensor) -> Tensor:
        if self.pixels and x.dtype != torch.uint8:
            raise SnclError("this model learned from images of whole numbers from 0 to 255, not from floats")
        return x if self.pixels or x.dim() == 2 else x.float()

    def to_json(self) -> dict[str, Any]:
        """Plain data, from which :meth:`from_json` makes the same again."""
        return {
            "format": FORMAT,
            "form": self.form,
            "class_names": list(self.class_names),
            "shape": list(self.shape),
            "type": "uint8" if self.pixels else "float32",
            "transform": describe_transform(self.transform),
            "tasks": [list(group) for group in self.groups],
            "task_names": list(self.task_names),
            "scale": None if self.scale is None else self.scale.to_json(),
            "encoder": None if self.encoder is None else self.encoder.to_json(),
            "target": self.target,
            "domain": self.domain,
            "resize": self.resize,
            "data": self.fingerprint,
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """The inverse of :meth:`to_json`; a ValueError where this is something else."""
        try:
            if state["format"] != FORMAT:
                raise ValueError(f"it has format {state['format']}, and this sncl has {FORMAT}")
            if state["form"] not in get_args(SourceForm) or state["type"] not in ("uint8", "float32"):
                raise ValueError("it names a form or a type that does not exist")
            return cls(
                form=state["form"],
                class_names=tuple(map(str, state["class_names"])),
                shape=tuple(map(int, state["shape"])),
                pixels=state["type"] == "uint8",
                transform=made_transform(state["transform"]),
                groups=tuple(tuple(map(int, group)) for group in state["tasks"]),
                fingerprint=str(state["data"]),
                task_names=tuple(map(str, state["task_names"])),
                scale=None if state["scale"] is None else FixedScale.from_json(state["scale"]),
                encoder=None if state["encoder"] is None else TableEncoder.from_json(state["encoder"]),
                target=state["target"],
                domain=state["domain"],
                resize=bool(state["resize"]),
            )
        except (LookupError, TypeError, AttributeError, OverflowError, RuntimeError, SnclError) as error:
            raise ValueError(f"it is no preprocessing of a run ({error})") from error


def preprocessing_of(
    stream: Stream,
    form: SourceForm,
    scale: FixedScale | None = None,
    encoder: TableEncoder | None = None,
    target: str | None = None,
    domain: str | None = None,
    resize: bool = False,
) -> Preprocessing:
    """How the samples of a stream were made of what was read."""
    return Preprocessing(
        form=form,
        class_names=stream.names or tuple(map(str, range(stream.classes))),
        shape=stream.shape,
        pixels=stream.x.dtype == torch.uint8,
        transform=stream.transform,
        groups=tuple(tuple(group.nonzero().flatten().tolist()) for group in stream.groups),
        fingerprint=stream.source_fingerprint,
        task_names=stream.task_names,
        scale=scale,
        encoder=encoder,
        target=target,
        domain=domain,
        resize=resize,
    )


def describe_transform(transform: Transform) -> dict[str, Any]:
    """A transform of a stream as plain data."""
    if isinstance(transform, Unit):
        return {"kind": "unit", "mean": transform.mean, "std": transform.std}
    if isinstance(transform, CropFlip):
        return {
            "kind": "strong" if isinstance(transform, Strong) else "crop-flip",
            "padding": transform.padding,
            "mean": list(transform.mean),
            "std": list(transform.std),
        }
    if isinstance(transform, Identity):
        return {"kind": "identity"}
    raise SnclError(f"{type(transform).__name__} is no transform of a stream, so it cannot be kept as plain data")


def made_transform(state: dict[str, Any]) -> Transform:
    """The inverse of :func:`describe_transform`."""
    match state["kind"]:
        case "unit":
            return Unit(float(state["mean"]), float(state["std"]))
        case "crop-flip" | "strong":
            mean, std = (tuple(map(float, state[name])) for name in ("mean", "std"))
            return (Strong if state["kind"] == "strong" else CropFlip)(int(state["padding"]), mean, std)
        case "identity":
            return Identity()
    raise ValueError(f"it names a transform {state['kind']!r}, which does not exist")


def _are_paths(raw: Any) -> bool:
    return isinstance(raw, (list, tuple)) and bool(raw) and all(isinstance(each, Path) for each in raw)

"""File formats: how a file is made of a network, and how its content is run again.

The model takes uint8 images [samples, channels, height, width], any number of them, and returns logits.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sncl.errors import SnclError

Predict = Callable[[Tensor], Tensor]  # images -> logits


class ModelFile(NamedTuple):
    """What a file holds, and how it predicts."""

    content: bytes
    predict: Predict


class Format(NamedTuple):
    """A file format: how a file is made, how its content is loaded, and the packages that both need."""

    title: str
    suffix: str
    make: Callable[[nn.Module, Tensor], bytes]
    load: Callable[[bytes], Predict]
    packages: tuple[str, ...] = ()

    def file(self, model: nn.Module, images: Tensor) -> ModelFile:
        """The file of a model, loaded again, to predict on as many threads as torch has now."""
        content = self.make(model, images)
        return ModelFile(content, self.load(content))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of exporters about themselves."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _make_onnx(model: nn.Module, images: Tensor) -> bytes:
    with _quietly():
        program = torch.onnx.export(
            model,
            (images,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: "rows"},),
            custom_translation_table={torch.ops.aten._cdist_forward.default: _distances},
        )
    assert program is not None
    model_file = program.model_proto
    for part in (*model_file.graph.node, *model_file.graph.value_info):
        del part.metadata_props[:]  # among them, which line of which file on this machine it comes from
    content: bytes = model_file.SerializeToString()
    return content


def _distances(x: Any, y: Any, p: float, compute_mode: int | None = None) -> Any:
    """Euclidean distances of all pairs, which iCaRL predicts by and the exporter does not know."""
    from onnxscript import opset18

    op: Any = opset18
    apart = op.Sub(op.Unsqueeze(x, op.Constant(value_ints=[1])), y)
    return op.Sqrt(op.ReduceSum(op.Mul(apart, apart), op.Constant(value_ints=[2]), keepdims=0))


def _load_onnx(content: bytes) -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])


def _make_torch(model: nn.Module, images: Tensor) -> bytes:
    file = io.BytesIO()
    with _quietly():
        rows = torch.export.Dim("rows")
        program = torch.export.export(model, (images,), dynamic_shapes=({0: rows},), strict=False)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names files of this machine
        torch.export.save(program, file)
    return file.getvalue()


def _load_torch(content: bytes) -> Predict:
    with _quietly():
        return torch.export.load(io.BytesIO(content)).module()


FORMATS = {
    "onnx": Format("ONNX", ".onnx", _make_onnx, _load_onnx, ("onnx", "onnxscript", "onnxruntime")),
    "torch": Format("torch.export", ".pt2", _make_torch, _load_torch),
}


def choose_format(name: str | None, file: Path | None) -> Format:
    """The format of that name or of a file's suffix, if all that it needs is installed; ONNX where neither is given."""
    suffixes = {form.suffix: each for each, form in FORMATS.items()}
    if file is not None and (file.suffix not in suffixes or name not in (None, suffixes[file.suffix])):
        ends = " or ".join(FORMATS[each].suffix for each in (FORMATS if name is None else [name]))
        raise SnclError(f"the name of the file ends in {ends}, not {file.name}")
    found = FORMATS[name or ("onnx" if file is None else suffixes[file.suffix])]
    missing = [package for package in found.packages if find_spec(package) is None]
    if missing:
        raise SnclError(
            f"an {found.title} file needs {' and '.join(missing)}: pip install sncl[export]; `torch` needs neither"
        )
    return found

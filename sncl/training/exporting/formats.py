"""File formats: how a file is made of a network, and how its content is run again.

The model takes one tensor of samples, any number of them, and returns logits. A file also carries texts by name: its
metadata.
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

from sncl.errors import SnclError, lacking

Predict = Callable[[Tensor], Tensor]  # samples -> logits
Metadata = dict[str, str]


class ModelFile(NamedTuple):
    """What a file holds, and how it predicts."""

    content: bytes
    predict: Predict


class Format(NamedTuple):
    """A file format: how a file is made, how its content is loaded, and the packages that both need."""

    title: str
    suffix: str
    make: Callable[[nn.Module, Tensor, str, Metadata], bytes]
    load: Callable[[bytes], Predict]
    packages: tuple[str, ...] = ()

    def file(self, model: nn.Module, example: Tensor, name: str, metadata: Metadata) -> ModelFile:
        """The file of a model, loaded again, to predict on as many threads as torch has now.

        ``name`` is that of its input.
        """
        try:
            content = self.make(model, example, name, metadata)
        except Exception as error:  # whatever the tracer may raise at a network it does not understand
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise SnclError(f"this network cannot be written as {self.title}: {reason[:300]}") from error
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


def _make_onnx(model: nn.Module, example: Tensor, name: str, metadata: Metadata) -> bytes:
    with _quietly():
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=[name],
            output_names=["logits"],
            dynamic_shapes=({0: "rows"},),
            custom_translation_table={torch.ops.aten._cdist_forward.default: _distances},
        )
    assert program is not None
    model_file = program.model_proto
    for part in (*model_file.graph.node, *model_file.graph.value_info):
        del part.metadata_props[:]  # among them, which line of which file on this machine it comes from
    for key, value in metadata.items():
        model_file.metadata_props.add(key=key, value=value)
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
    (given,) = session.get_inputs()
    return lambda samples: torch.from_numpy(session.run(["logits"], {given.name: samples.numpy()})[0])


def _make_torch(model: nn.Module, example: Tensor, name: str, metadata: Metadata) -> bytes:
    file = io.BytesIO()
    with _quietly():
        rows = torch.export.Dim("rows")
        program = torch.export.export(model, (example,), dynamic_shapes=({0: rows},), strict=False)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names files of this machine
        torch.export.save(program, file, extra_files=dict(metadata))
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
        raise SnclError(f"{lacking(f'an {found.title} file', *missing)}; `torch` needs neither")
    return found

"""``Learner.export``: what predicts as a file, compared with the learner before it is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from used_runs import gappy_flowers, train_on
from user_files import save_table

import sncl
from sncl import Learner
from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.streams.standardisation import RunningScale
from sncl.streams.transforms import Unit
from sncl.tables import read_columns
from sncl.training.exporting import write
from sncl.training.exporting.formats import FORMATS, Predict


def learned(net: nn.Module, method: str = "er", **options: object) -> Learner:
    learner = Learner(net, method, memory=20, device="cpu", **options)  # type: ignore[arg-type]
    numbers = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.rand(16, 6, generator=numbers)
        learner.learn(x, (x.sum(1) > 3).long())
    return learner


def session(file: Path) -> object:
    return pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_learner_with_gates_and_an_average(tmp_path: Path, suffix: str) -> None:
    learner = learned(MLP(6, 2, 20), "sncl", ema=0.9)
    before = learner.state()
    file = tmp_path / f"model{suffix}"
    learner.export(file, class_names=["small", "large"])
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    x = torch.rand(50, 6)
    wanted = learner.logits(x)
    if suffix == ".onnx":
        model = session(file)
        found = torch.from_numpy(model.run(None, {"rows": x.numpy()})[0])  # type: ignore[attr-defined]
        metadata = model.get_modelmeta().custom_metadata_map  # type: ignore[attr-defined]
    else:
        metadata = {"class_names": "", "method": ""}
        found = torch.export.load(file, extra_files=metadata).module()(x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert json.loads(metadata["class_names"]) == ["small", "large"] and metadata["method"] == "SNCL"
    assert all(torch.equal(value, before[name]) for name, value in learner.state().items())  # left as it was
    learner.learn(x[:16], torch.zeros(16, dtype=torch.int64))


def test_a_loaded_run_takes_rows_before_they_are_standardised(tmp_path: Path) -> None:
    table = save_table(tmp_path / "flowers.csv", gappy_flowers())
    learner = sncl.load(train_on(table, tmp_path / "run"))
    preprocessing = learner.preprocessing
    assert preprocessing is not None
    learner.export(tmp_path / "model.pt2")
    texts = {"class_names": "", "stream": "", "seed": ""}
    model = torch.export.load(tmp_path / "model.pt2", extra_files=texts).module()
    columns = read_columns(table)
    encoded = preprocessing.encoded(columns)
    assert encoded.dtype == torch.float64
    torch.testing.assert_close(model(encoded), learner.logits(preprocessing.inputs(columns)), atol=1e-5, rtol=1e-5)
    assert (texts["stream"], texts["seed"]) == ("table:flowers.csv", "0")
    assert json.loads(texts["class_names"]) == list(preprocessing.class_names)


def test_a_running_scale_is_inside_as_it_is_now(tmp_path: Path) -> None:
    scale = RunningScale(6)
    scale.update(torch.rand(40, 6) * 7)
    learner = learned(nn.Linear(6, 2), transform=scale)
    x = torch.rand(9, 6) * 7
    wanted = learner.logits(x)
    learner.export(tmp_path / "model.pt2")
    scale.update(torch.rand(40, 6) + 50)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(x), wanted)


def test_images_of_bytes_and_an_example(tmp_path: Path) -> None:
    learner = Learner(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "sgd", transform=Unit(), device="cpu")
    x = torch.randint(0, 256, (8, 3, 2, 2), dtype=torch.uint8)
    learner.learn(x, torch.arange(8) % 3)
    learner.export(tmp_path / "model.pt2", example=x)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(x), learner.logits(x))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        logits: Tensor = self.layer(torch.cat([left, right], 1))
        return logits


class Branching(nn.Module):
    """Its path depends on values, which no exporter can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x if float(x.sum()) > 0 else -x)
        return logits


def test_what_cannot_be_exported_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.pt2"
    two = Learner(TwoInputs(), "er", device="cpu")
    two.learn({"left": torch.rand(4, 2), "right": torch.rand(4, 2)}, [0, 1, 0, 1])
    with pytest.raises(SnclError, match="takes one tensor, and this network takes 'left', 'right'"):
        two.export(file)
    told = learned(MLP(6, 2, 8), "pnn")
    with pytest.raises(SnclError, match="predicts only when told the task"):
        told.export(file)
    plain = learned(nn.Linear(6, 2))
    with pytest.raises(SnclError, match="has 3 names, and the network 2 outputs"):
        plain.export(file, class_names=["a", "b", "c"])
    with pytest.raises(SnclError, match=r"ends in \.onnx or \.pt2, not model\.bin"):
        plain.export(tmp_path / "model.bin")
    with pytest.raises(SnclError, match="in a folder that exists"):
        plain.export(tmp_path / "nowhere" / "model.pt2")
    with pytest.raises(SnclError, match="has not learned anything yet"):
        Learner(nn.Linear(6, 2), "er").export(file)
    with pytest.raises(SnclError, match=r"cannot be written as torch\.export: "):
        learned(Branching()).export(file)

    def spoiled(content: bytes) -> Predict:
        return lambda x: -FORMATS["torch"].load(content)(x)

    monkeypatch.setattr(write, "choose_format", lambda name, path: FORMATS["torch"]._replace(load=spoiled))
    with pytest.raises(SnclError, match=r"another class than the network for .* nothing was written"):
        plain.export(file)
    assert not list(tmp_path.iterdir())


def test_a_file_with_logits_that_are_no_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(content: bytes) -> Predict:
        return lambda x: torch.full((len(x), 2), np.nan)

    monkeypatch.setattr(write, "choose_format", lambda name, path: FORMATS["torch"]._replace(load=broken))
    with pytest.raises(SnclError, match="another class"):
        learned(nn.Linear(6, 2)).export(tmp_path / "model.pt2")

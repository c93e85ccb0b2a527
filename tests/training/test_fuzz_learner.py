"""Checkpoints made by hand, with a right checksum: a learner goes on from them, or refuses and stays as it is."""

import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from torch import Tensor, nn

from sncl.training.checkpoint import pack, unpack, write_atomically
from sncl.training.learner import Learner

BATCH = (torch.rand(4, 6, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 3)


def make() -> Learner:
    torch.manual_seed(0)
    return Learner(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), "derpp", memory=10, device="cpu")


def saved(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    path = folder / "whole"
    if not path.exists():
        learner = make()
        for _ in range(3):
            learner.learn(*BATCH)
        learner.save(path)
    return unpack(path.read_bytes())


def changed(data: st.DataObject, value: Tensor) -> Tensor:
    kind = data.draw(st.sampled_from(["shape", "type", "nan", "negative", "large"]))
    if kind == "shape":
        return value.reshape(-1)[: data.draw(st.integers(0, 3))]
    if kind == "type":
        return value.to(data.draw(st.sampled_from([torch.float64, torch.int64, torch.uint8, torch.bool])))
    if kind == "nan":
        return torch.full_like(value, torch.nan) if value.is_floating_point() else torch.zeros_like(value)
    return -value if kind == "negative" and value.dtype != torch.bool else value + 100


@settings(FUZZ, max_examples=FUZZ.max_examples // 2)
@given(st.data())
def test_learner(tmp_path: Path, data: st.DataObject) -> None:
    tensors, description = saved(tmp_path)
    path = fresh(tmp_path)
    if data.draw(st.booleans()):
        try:
            description = json.loads(data.draw(mutants([json.dumps(description).encode()])))
        except (ValueError, RecursionError):
            return
    else:
        name = data.draw(st.sampled_from(sorted(tensors)))
        tensors[name] = changed(data, tensors[name])
    write_atomically(path, pack(tensors, description))
    learner = make()
    learner.learn(*BATCH)
    before = learner.state()

    def load() -> bool:
        learner.load(path)
        return True

    if read_or_refused(load) is None:
        assert all(torch.equal(value, before[name]) for name, value in learner.state().items())
        learner.learn(*BATCH)
    path.unlink()

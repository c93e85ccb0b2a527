"""A damaged checkpoint gives what was stored, or is refused; one that was made by hand is no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutants import FUZZ, fresh, mutants, read_or_refused
from safetensors.torch import save

from sncl.errors import SnclError
from sncl.training.checkpoint import CHECKSUM, HEADER, checkpoint_checksum, read_checkpoint, write_checkpoint

TENSORS = {"network/a": torch.arange(8.0), "random/b": torch.tensor(1), "none": torch.zeros(0, 4)}
DESCRIPTION = {"steps": 1, "place": [0, 1]}


@FUZZ
@given(st.data())
def test_checkpoint(tmp_path: Path, data: st.DataObject) -> None:
    path = fresh(tmp_path)
    write_checkpoint(path, TENSORS, DESCRIPTION)
    path.write_bytes(data.draw(mutants([path.read_bytes()])))
    found = read_or_refused(lambda: read_checkpoint(path))
    if found is not None:
        tensors, description = found
        assert description == DESCRIPTION
        assert tensors.keys() == TENSORS.keys()
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    path.unlink()


@pytest.mark.parametrize("text", ["[]", "null", "3", '"text"', "[" * 200_000, "{", ""])
def test_a_right_checksum_over_a_wrong_description(tmp_path: Path, text: str) -> None:
    metadata = {HEADER: text, CHECKSUM: checkpoint_checksum(TENSORS, text)}
    (tmp_path / "file").write_bytes(save(TENSORS, metadata))
    with pytest.raises(SnclError, match="damaged"):
        read_checkpoint(tmp_path / "file")


@pytest.mark.parametrize("metadata", [None, {}, {HEADER: "{}"}, {CHECKSUM: "00000000"}, [], "text"])
def test_a_header_that_says_something_else(tmp_path: Path, metadata: Any) -> None:
    header = json.dumps({} if metadata is None else {"__metadata__": metadata}).encode()
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(SnclError, match="damaged"):
        read_checkpoint(tmp_path / "file")

"""What the fuzz tests rely on: a reader that takes too much memory, or says more than a line, does not pass."""

import re
from pathlib import Path

import numpy as np
import pytest
from limits import STATM, limited_memory
from mutants import CORPUS, corpus, read_or_refused

from sncl.errors import SnclError

TESTS = Path(__file__).parent
READERS = (  # every reader of files from elsewhere, by the name of its fuzz test
    *("csv", "parquet", "npz", "images", "idx", "binary_cifar", "pickled_cifar", "tiny_imagenet", "archives", "cache"),
    *("checkpoint", "learner", "result", "experiment", "log", "report", "settings", "lines", "journal"),
)


def refusing(error: Exception) -> None:
    try:
        raise error
    except Exception as cause:
        raise SnclError("refused") from cause


@pytest.mark.skipif(not STATM.exists(), reason="needs a system that limits memory")
def test_a_reader_that_takes_too_much_memory_fails() -> None:
    with pytest.raises(MemoryError):
        read_or_refused(lambda: np.zeros(8 * 2**30, np.uint8))
    with pytest.raises(AssertionError, match="no memory left"):
        read_or_refused(lambda: refusing(MemoryError()))
    with limited_memory(2**20), pytest.raises(MemoryError):
        np.zeros(2**28, np.uint8)
    assert len(np.zeros(2**28, np.uint8)) == 2**28  # the limit is gone


def test_what_is_refused_in_one_line_passes() -> None:
    assert read_or_refused(lambda: refusing(ValueError())) is None
    assert read_or_refused(lambda: 3) == 3
    with pytest.raises(ValueError, match="traceback"):
        read_or_refused(lambda: int("traceback"))


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    assert str(SnclError("x cannot be read (first\n  second\r\nthird\u2028fourth\n)")) == (
        "x cannot be read (first second third fourth )"
    )


def test_every_reader_has_a_fuzz_test() -> None:
    found = {
        name
        for path in TESTS.rglob("test_fuzz_*.py")
        for name in re.findall(r"^def test_(\w+)", path.read_text(), re.M)
    }
    assert set(READERS) <= found


def test_corpora_are_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert files and all(path.stat().st_size < 4096 for path in files)
    assert all(corpus(path.name) for path in CORPUS.iterdir() if path.is_dir())

"""A run goes on, and its result is shown, only with the data it was made with; a finished one is found without them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Sncl
from dataset_files import idx

from sncl.errors import SnclError
from sncl.runs import build, data
from sncl.runs.experiment import EXPERIMENT, Experiment
from sncl.runs.loading import load_run
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT
from sncl.streams.datasets import sources
from sncl.training.checkpoint import read_checkpoint, read_json, write_checkpoint, write_json
from sncl.training.events import Moment
from sncl.training.run import CHECKPOINT

OTHER = (
    r"was made with other data: what seq-mnist names has changed since; bring back the data, or choose another `out`"
)


def save(root: Path, labels: int = 0, images: int = 0) -> Path:
    """A small MNIST whose labels are turned by so many, and whose images are those of a seed."""
    random = np.random.default_rng(images)
    root.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 60), ("t10k", 20)):
        y = (np.arange(count) + labels) % 10
        x = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (root / f"{split}-images-idx3-ubyte").write_bytes(idx(x))
        (root / f"{split}-labels-idx1-ubyte").write_bytes(idx(y.astype(np.uint8)))
    return root


def small(**changed: Any) -> Experiment:
    return plan("seq-mnist", "er", **({"memory": 10, "tasks": 2, "epochs": 1, "device": "cpu"} | changed))


class Stop(Exception):
    pass


def begin(folder: Path, root: Path) -> None:
    """A run that is broken off behind its first batches."""

    def stop(moment: Moment) -> None:
        if moment.steps == 2:
            raise Stop

    with pytest.raises(Stop):
        perform(small(), folder, root, watch=stop, checkpoint_seconds=0)
    assert (folder / CHECKPOINT).exists()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def forget_data(folder: Path) -> None:
    """The folder as sncl wrote it before benchmarks had a fingerprint."""
    facts = read_json(folder / EXPERIMENT)
    write_json(
        folder / EXPERIMENT, {key: value for key, value in facts.items() if key not in ("data", "files", "crc32")}
    )
    tensors, description = read_checkpoint(folder / CHECKPOINT)
    del description["experiment"]["data"]
    write_checkpoint(folder / CHECKPOINT, tensors, description)


@pytest.mark.parametrize("change", [{"labels": 1}, {"images": 1}])
def test_a_run_is_not_resumed_on_other_data(tmp_path: Path, change: dict[str, int]) -> None:
    root, folder = save(tmp_path / "data"), tmp_path / "run"
    begin(folder, root)
    before = files(folder)
    save(root, **change)
    with pytest.raises(SnclError, match=OTHER):
        perform(small(), folder, root)
    assert files(folder) == before
    (folder / EXPERIMENT).unlink()
    with pytest.raises(SnclError, match="but no experiment"):
        perform(small(), folder, root)
    save(root)
    (folder / EXPERIMENT).write_bytes(before[EXPERIMENT])
    whole = perform(small(), tmp_path / "whole", root)
    assert perform(small(), folder, root).measures == whole.measures


def test_a_checkpoint_on_other_data_is_refused_where_its_description_is_of_these(tmp_path: Path) -> None:
    root = save(tmp_path / "data")
    begin(tmp_path / "a", root)
    begin(tmp_path / "b", save(tmp_path / "other", labels=3))
    shutil.copy(tmp_path / "b" / CHECKPOINT, tmp_path / "a" / CHECKPOINT)
    with pytest.raises(SnclError, match=OTHER):
        perform(small(), tmp_path / "a", root)


@pytest.mark.parametrize("change", [{"labels": 1}, {"images": 1}])
def test_a_finished_run_is_not_shown_for_other_data(sncl: Sncl, tmp_path: Path, change: dict[str, int]) -> None:
    root = save(tmp_path / "data")
    command = ("train", "--stream", "seq-mnist", "--method", "er", "--memory", "10", "--epochs", "1", "--device", "cpu")
    command += ("--data", str(root), "--out", "run", "--json")
    first = sncl(*command).json()
    again = sncl(*command)
    assert "already finished" in again.err and again.json() == first
    save(root, **change)
    done = sncl(*command)
    assert done.code == 2 and done.out == "" and "already finished" not in done.err
    assert "run was made with other data: what seq-mnist names has changed since" in " ".join(done.err.split())


def test_a_finished_run_is_found_without_reading_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = save(tmp_path / "data"), tmp_path / "run"
    result = perform(small(), folder, root)
    monkeypatch.setattr(sources, "load", None)
    monkeypatch.setattr("sncl.streams.build.load", None)
    assert perform(small(), folder, root) == result
    assert perform(small(), folder, tmp_path / "nowhere") == result


def test_the_same_data_in_other_files_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = save(tmp_path / "data"), tmp_path / "run"
    result = perform(small(), folder, root)
    shutil.copytree(root, tmp_path / "elsewhere" / "mnist")
    read: list[str] = []
    load = sources.load
    monkeypatch.setattr(sources, "load", lambda *given: read.append(given[0]) or load(*given))
    for _ in range(2):
        assert perform(small(), folder, tmp_path / "elsewhere") == result
    assert read == ["mnist"]  # once in a process


def test_files_without_a_fingerprint_are_still_read(tmp_path: Path) -> None:
    root = save(tmp_path / "data")
    whole = perform(small(), tmp_path / "whole", root)
    begin(tmp_path / "run", root)
    for folder in (tmp_path / "whole", tmp_path / "run"):
        forget_data(folder)
    assert perform(small(), tmp_path / "run", root).measures == whole.measures
    assert read_json(tmp_path / "run" / EXPERIMENT)["data"] == whole.manifest.data
    assert read_checkpoint(tmp_path / "run" / CHECKPOINT)[1]["experiment"]["data"] == whole.manifest.data
    assert perform(small(), tmp_path / "whole", root) == whole
    assert load_run(tmp_path / "whole", root, "cpu").result == whole
    save(root, labels=1)  # its result says of which data it is
    with pytest.raises(SnclError, match=OTHER):
        perform(small(), tmp_path / "whole", root)
    with pytest.raises(SnclError, match="was trained on other data than those found here"):
        load_run(tmp_path / "whole", root, "cpu")


def test_a_result_on_other_data_than_its_description_says_is_refused(tmp_path: Path) -> None:
    root = save(tmp_path / "data")
    perform(small(), tmp_path / "a", root)
    perform(small(), tmp_path / "b", save(tmp_path / "other", labels=1))
    shutil.copy(tmp_path / "b" / RESULT, tmp_path / "a" / RESULT)
    with pytest.raises(SnclError, match=r"result\.json is damaged: it is about another run"):
        perform(small(), tmp_path / "a", tmp_path / "nowhere")


def test_a_run_that_wants_certain_data_starts_on_no_others(tmp_path: Path) -> None:
    wanted = build.make_stream(small(), save(tmp_path / "data")).source_fingerprint
    experiment = Experiment(**(vars(small()) | {"data": wanted}))
    assert experiment.name() == small().name()
    with pytest.raises(SnclError, match="the data of seq-mnist found here are not those that this run is about"):
        perform(experiment, tmp_path / "run", save(tmp_path / "other", images=1))
    assert not (tmp_path / "run").exists()


def test_files_that_change_while_they_are_read_leave_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = save(tmp_path / "data")
    stamps = iter(["before", "after"])
    monkeypatch.setattr(data, "file_stamp", lambda *_: next(stamps))
    perform(small(), tmp_path / "run", root)
    assert "files" not in read_json(tmp_path / "run" / EXPERIMENT)


def test_every_benchmark_names_its_files(tmp_path: Path, real_files: dict[str, Path]) -> None:
    for name, root in real_files.items():
        stamp = sources.file_stamp(name, root)
        assert stamp is not None and stamp == sources.file_stamp(name, root)
        folder = sources.READERS[name].find(root)
        assert folder is not None
        for path in sources.READERS[name].files(folder):
            assert path.exists()
    assert sources.file_stamp("mnist", tmp_path / "nowhere") is None


@pytest.fixture
def real_files(tmp_path: Path) -> dict[str, Path]:
    from dataset_files import write_cifar, write_tiny

    binary, _ = write_cifar(tmp_path / "cifar")
    tiny = write_tiny(tmp_path / "tiny").parent
    return {"mnist": save(tmp_path / "mnist"), "cifar10": binary.parent, "tiny-imagenet": tiny, "digits": tmp_path}

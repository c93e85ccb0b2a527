"""A finished run comes back as the network that was scored; anything else is refused in one sentence."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from sncl.errors import SnclError
from sncl.runs.experiment import EXPERIMENT
from sncl.runs.loading import Trained, load_run
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT
from sncl.tensors.fields import within
from sncl.training.checkpoint import read_checkpoint, sealed, unsealed, write_checkpoint
from sncl.training.evaluate import accuracies
from sncl.training.run import CHECKPOINT, TASK_NETWORK


def test_the_loaded_network_scores_what_the_run_scored(gated: Trained) -> None:
    found = accuracies(gated.learner, gated.stream, range(3))
    assert found.keys() == gated.result.measures.keys() == {"class_il", "task_il"}
    for readout, row in found.items():
        assert row == gated.result.measures[readout].accuracy_matrix[-1]


def test_the_network_after_a_task_scores_what_it_scored_then(gated: Trained, plain: Trained) -> None:
    for task in (1, 2, 3):
        learner = gated.after_task(task)
        assert learner is not None
        assert (
            accuracies(learner, gated.stream, range(task))["class_il"][:task]
            == (gated.result.accuracy_matrix[task - 1][:task])
        )
    assert plain.after_task(1) is None


def test_the_memory_comes_back_too(runs: Path, tmp_path: Path) -> None:
    for name in ("er-0", "sncl-0", "icarl-0"):
        memory = load_run(runs / name, device="cpu").learner.memory
        stored = within("memory", read_checkpoint(runs / name / CHECKPOINT)[0])
        assert memory is not None and len(memory) == 30
        assert all(torch.equal(value, stored[key]) for key, value in memory.state().items())
    shutil.copytree(runs / "er-0", tmp_path / "run")
    tensors, description = read_checkpoint(runs / "er-0" / CHECKPOINT)
    for change in ({"memory/rows/y": tensors["memory/rows/y"] + 10}, {"memory/count": torch.zeros(1)}):
        write_checkpoint(tmp_path / "run" / CHECKPOINT, tensors | change, description)
        with pytest.raises(SnclError, match=r"this checkpoint (belongs to another learner|is damaged): its memory"):
            load_run(tmp_path / "run", device="cpu")


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(sealed(unsealed(json.loads(path.read_text())) | changes)))


def test_what_is_no_finished_run_is_refused(runs: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        shutil.copytree(runs / "sncl-0", tmp_path / name)
        return tmp_path / name

    with pytest.raises(SnclError, match="no run folder"):
        load_run(tmp_path / "nowhere")
    folder = copy("unfinished")
    (folder / RESULT).unlink()
    with pytest.raises(SnclError, match="is not finished"):
        load_run(folder)
    folder = copy("no checkpoint")
    (folder / CHECKPOINT).unlink()
    with pytest.raises(SnclError, match=r"has no checkpoint\.safetensors"):
        load_run(folder)
    folder = copy("torn")
    content = (folder / CHECKPOINT).read_bytes()
    (folder / CHECKPOINT).write_bytes(content[: len(content) // 2])
    with pytest.raises(SnclError, match="damaged"):
        load_run(folder)
    folder = copy("another")
    edit(folder / EXPERIMENT, seed=5)
    with pytest.raises(SnclError, match="another experiment"):
        load_run(folder)
    folder = copy("no json")
    (folder / EXPERIMENT).write_text("{")
    with pytest.raises(SnclError, match="damaged"):
        load_run(folder)
    for changes in ({"manifest": None}, {"accuracy": 3}):
        folder = copy(f"result {next(iter(changes))}")
        edit(folder / RESULT, **changes)
        with pytest.raises(SnclError, match="damaged"):
            load_run(folder, device="cpu")
    folder = copy("another result")
    edit(folder / RESULT, manifest=json.loads((folder / RESULT).read_text())["manifest"] | {"data": "0"})
    with pytest.raises(SnclError, match="it is about another run"):
        load_run(folder, device="cpu")
    folder = copy("foreign task")
    shutil.copy(folder / CHECKPOINT, folder / TASK_NETWORK.format(2))
    run = load_run(folder, device="cpu")
    assert run.after_task(2) is not None  # the same experiment
    (folder / TASK_NETWORK.format(2)).write_bytes(b"nothing")
    with pytest.raises(SnclError, match="damaged"):
        run.after_task(2)


@pytest.mark.parametrize("learner", [None, [], "text"])
def test_a_checkpoint_made_by_hand_is_refused(runs: Path, tmp_path: Path, learner: object) -> None:
    """Its checksum fits, but it says nothing of its learner, or of how far the run is."""
    shutil.copytree(runs / "er-0", tmp_path / "run")
    path = tmp_path / "run" / CHECKPOINT
    experiment = plan("seq-digits", "er", memory=30, tasks=3, epochs=1, seed=0, device="cpu")
    tensors, description = read_checkpoint(path)
    write_checkpoint(path, tensors, {"experiment": description["experiment"], "learner": learner})
    with pytest.raises(SnclError, match="is damaged: it says nothing of its learner"):
        load_run(tmp_path / "run", device="cpu")
    (tmp_path / "run" / RESULT).unlink()
    with pytest.raises(SnclError, match="is damaged: it does not say how far its run is"):
        perform(experiment, tmp_path / "run")
    for length in ("a", -1, 10**30):
        write_checkpoint(path, tensors, description | {"log_length": length})
        with pytest.raises(SnclError, match="is damaged: it does not say how far its run is"):
            perform(experiment, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": None}, "'memory' is missing or of the wrong kind"),
        ({"seed": 10**400}, "'seed' is missing or of the wrong kind"),
        ({"settings": {"lr": []}}, "its settings are no texts and numbers"),
        ({"user_data": 3}, "'user_data' is missing or of the wrong kind"),
    ],
)
def test_a_damaged_description_is_refused(runs: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    shutil.copytree(runs / "er-0", tmp_path / "run")
    edit(tmp_path / "run" / EXPERIMENT, **change)
    with pytest.raises(SnclError, match=f"{EXPERIMENT} is damaged: {message}"):
        load_run(tmp_path / "run", device="cpu")

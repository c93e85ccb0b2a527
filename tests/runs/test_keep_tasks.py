"""``--keep-tasks``: the network after each task lies in the run folder, and nothing else is different for it."""

from pathlib import Path

import pytest
import torch

from sncl.errors import SnclError
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.checkpoint import read_checkpoint
from sncl.training.evaluate import accuracies
from sncl.training.events import Moment
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT, TASK_NETWORK


def short(method: str = "sncl") -> Experiment:
    return plan("seq-digits", method, memory=30, tasks=3, epochs=1, device="cpu")


class Crash(Exception):
    pass


def test_keeping_networks_changes_nothing_else(tmp_path: Path) -> None:
    plain = perform(short(), tmp_path / "plain")
    kept = perform(short(), tmp_path / "kept", keep_tasks=True)
    assert kept.measures == plain.measures
    assert (tmp_path / "kept" / LOG).read_bytes() == (tmp_path / "plain" / LOG).read_bytes()
    ours, theirs = (read_checkpoint(tmp_path / name / CHECKPOINT)[0] for name in ("kept", "plain"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    files, fewer = ({path.name for path in (tmp_path / name).iterdir()} for name in ("kept", "plain"))
    assert files - fewer == {"task-01.safetensors", "task-02.safetensors", "task-03.safetensors"}


@pytest.mark.parametrize("method", ["sncl", "pnn"])
def test_what_is_kept_is_the_network_that_was_scored(tmp_path: Path, method: str) -> None:
    result = perform(short(method), tmp_path, keep_tasks=True)
    stream = make_stream(short(method), None)
    for task in range(3):
        state, description = read_checkpoint(tmp_path / TASK_NETWORK.format(task + 1))
        assert {name.partition("/")[0] for name in state} <= {"network", "method", "ema"}
        learner = make_learner(short(method), stream)
        learner.restore_network(state, description["learner"])
        for readout, row in accuracies(learner, stream, range(task + 1)).items():
            assert row[: task + 1] == result.measures[readout].accuracy_matrix[task][: task + 1]


def test_networks_are_kept_across_a_crash(tmp_path: Path) -> None:
    perform(short(), tmp_path / "unbroken", keep_tasks=True)

    def crash(moment: Moment) -> None:
        if moment.task == 1 and moment.losses:
            raise Crash

    with pytest.raises(Crash):
        perform(short(), tmp_path / "broken", watch=crash, checkpoint_seconds=0, keep_tasks=True)
    assert not (tmp_path / "broken" / TASK_NETWORK.format(2)).exists()
    perform(short(), tmp_path / "broken", keep_tasks=True)
    for task in (1, 2, 3):
        (ours, said), (theirs, told) = (
            read_checkpoint(tmp_path / name / TASK_NETWORK.format(task)) for name in ("broken", "unbroken")
        )
        assert said == told and ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_network_restores_into_its_own_kind_of_learner_only(tmp_path: Path) -> None:
    perform(short(), tmp_path, keep_tasks=True)
    state, description = read_checkpoint(tmp_path / TASK_NETWORK.format(1))
    with pytest.raises(SnclError, match="another learner"):
        make_learner(short("er"), make_stream(short("er"), None)).restore_network(state, description["learner"])

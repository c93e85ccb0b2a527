"""How a run grows with its tasks and classes: by bytes, and by instructions, which are the same everywhere.

The accuracy of every task after every task is a square by nature, so what is written is compared with the number of
accuracies. Scores are drawn here, not measured: a thousand tasks would take half an hour to evaluate.
"""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from growth import assert_linear, work
from short_runs import short

from sncl.errors import SnclError
from sncl.runs.experiment import EXPERIMENT
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.runs.result import RESULT, read_result
from sncl.streams.build import build
from sncl.streams.stream import Stream
from sncl.streams.user.data import read
from sncl.streams.user.spec import parse_spec
from sncl.tensors.fields import Fields
from sncl.training import background_tests, diagnostics, run
from sncl.training.checkpoint import read_checkpoint, read_json, write_checkpoint, write_json
from sncl.training.evaluate import Assessment
from sncl.training.learner import Learner
from sncl.training.log import LOG
from sncl.training.run import CHECKPOINT

FEW = (10, 100)
MANY = pytest.param((*FEW, 1000), marks=pytest.mark.slow, id="1000")
WIDTH = 100
MOST_BYTES = 20e6  # of log and result for 1,000 tasks


class Sizes(NamedTuple):
    """Bytes of a run's files, and of what its last checkpoint says in JSON."""

    log: int
    result: int
    description: int


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs whose scores are drawn; the list tells how long the JSON in each checkpoint was, which is not written."""
    numbers = random.Random(0)
    described: list[int] = []

    def assessed(learner: Learner, stream: Stream, tasks: range) -> Assessment:
        """Of 360 samples, so that most have as many digits as there can be."""
        found = [100 * numbers.randrange(361) / 360 if task in tasks else None for task in range(stream.test_tasks)]
        return Assessment({"domain_il": found}, found)

    @cache
    def of_task(task: int) -> Fields:
        return {f"layer{layer}.1": torch.tensor([numbers.random() ** 4 for _ in range(WIDTH)]) for layer in (1, 2)}

    def responses(learner: Learner, stream: Stream, task: int) -> Fields:
        return of_task(task)

    monkeypatch.setattr(background_tests, "assessed", assessed)
    monkeypatch.setattr(run, "accuracies", lambda *given: assessed(*given).accuracies)
    monkeypatch.setattr(diagnostics, "responses", responses)
    monkeypatch.setattr(run, "write_checkpoint", lambda path, tensors, facts: described.append(len(json.dumps(facts))))
    return described


def sizes(folder: Path, drawn: list[int], method: str, tasks: int) -> Sizes:
    """After a run of so many tasks, each a single batch of some samples."""
    place = folder / f"{method}-{tasks}"
    settings = {"batch_size": "1500"}
    few = plan("perm-digits", method, memory=20, tasks=tasks, epochs=1, validation=0.9, device="cpu", settings=settings)
    perform(few, place)
    return Sizes((place / LOG).stat().st_size, (place / RESULT).stat().st_size, drawn[-1])


@pytest.mark.parametrize(
    ("method", "counts"), [("er", FEW), ("sncl", FEW), pytest.param("sncl", (100, 1000), marks=pytest.mark.slow)]
)
def test_tasks(tmp_path: Path, drawn: list[int], method: str, counts: tuple[int, ...]) -> None:
    found = {tasks: sizes(tmp_path, drawn, method, tasks) for tasks in counts}
    assert_linear({tasks: each.description for tasks, each in found.items()})
    measured = {tasks: each.log + each.result for tasks, each in found.items()}
    assert_linear({tasks**2: size for tasks, size in measured.items()})
    most = max(counts)
    assert measured[most] < MOST_BYTES * (most / 1000) ** 2 + 2000 * most


@pytest.mark.parametrize("counts", [FEW, MANY])
def test_classes(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Two tasks of ever more classes: reading them, arranging them, and what a run writes."""
    random_numbers = np.random.default_rng(0)
    built, written = {}, {}
    for classes in counts:
        path, out = tmp_path / f"{classes}.npz", tmp_path / str(classes)
        np.savez(path, x=random_numbers.normal(size=(6 * classes, 4)), y=np.arange(6 * classes) % classes)
        split = f"2x{classes // 2}"
        built[classes] = work(lambda name=f"npz:{path}", split=split: build(name, split=split))
        spec = parse_spec(f"npz:{path}", None, None, None, None)
        assert spec is not None
        settings = {"batch_size": "3000", "split": split}
        perform(plan("", "er", epochs=1, device="cpu", settings=settings, user_data=read(spec).user_data), out)
        written[classes] = sum((out / name).stat().st_size for name in (EXPERIMENT, LOG, RESULT))
    assert_linear(built)
    assert_linear(written)


# --- checkpoints -------------------------------------------------------------------------------------------------


def as_before(path: Path) -> None:
    """The checkpoint as early versions wrote it: what was measured is in its JSON."""
    tensors, description = read_checkpoint(path)
    del tensors["scores/confusion"]
    for name in [name for name in tensors if name.startswith("scores/")]:
        rows = [[None if value == -1 else value for value in row] for row in tensors.pop(name).tolist()]
        description["scores"]["matrices"][name.removeprefix("scores/")] = rows
    write_checkpoint(path, tensors, description)


class Stop(Exception):
    pass


def stopped_after_a_task(folder: Path) -> None:
    def stop(moment: Any) -> None:
        if moment.task == 2:
            raise Stop

    with pytest.raises(Stop):
        perform(short(tasks=3), folder, watch=stop)


def test_a_checkpoint_as_it_was_written_before_goes_on(tmp_path: Path) -> None:
    whole = perform(short(tasks=3), tmp_path / "whole")
    for name, change in (("now", lambda path: None), ("before", as_before)):
        stopped_after_a_task(tmp_path / name)
        change(tmp_path / name / CHECKPOINT)
        found = perform(short(tasks=3), tmp_path / name)
        assert found.measures == whole.measures and list(found.measures) == list(whole.measures)


@pytest.mark.parametrize("change", ["none", "flat", "words"])
def test_a_checkpoint_without_its_scores_is_refused(tmp_path: Path, change: str) -> None:
    stopped_after_a_task(tmp_path)
    tensors, description = read_checkpoint(tmp_path / CHECKPOINT)
    if change == "none":
        del tensors["scores/task_il"]
    elif change == "flat":
        tensors["scores/task_il"] = tensors["scores/task_il"][0]
    else:
        description["scores"] = "high"
    write_checkpoint(tmp_path / CHECKPOINT, tensors, description)
    with pytest.raises(SnclError, match="is damaged: it does not say how far its run is"):
        perform(short(tasks=3), tmp_path)


# --- the layout of results ---------------------------------------------------------------------------------------


def test_rows_of_numbers_are_one_line_and_nothing_else_is_changed(tmp_path: Path) -> None:
    matrix = [[1.5, None], [2, -1e-9]]
    others = {"a": [], "b": ["[\n1\n]", "x"], "c": [[], [{"d": [1]}]], "e": 3}
    for value in (others, matrix):
        write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == value
    assert (tmp_path / "a.json").read_text() == "[\n  [1.5,null],\n  [2,-1e-09]\n]\n"


def test_a_result_as_it_was_written_before_is_read(tmp_path: Path) -> None:
    """In another layout, and with every matrix where it belongs."""
    found, path = perform(short(), tmp_path), tmp_path / RESULT
    for facts in (read_json(path), found.to_json()):
        path.write_text(json.dumps(facts, indent=2))
        assert read_result(path) == found

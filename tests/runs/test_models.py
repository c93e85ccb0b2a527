"""``sncl.load``: a run as a learner again, without its data, to predict with and to go on learning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from used_runs import gappy_flowers, save_split, train_on
from user_files import save_table

import sncl
from sncl.errors import SnclError
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import PREPROCESSING
from sncl.runs.loading import load_run, read_stored
from sncl.training.checkpoint import sealed, unsealed
from sncl.training.learner import Learner
from sncl.training.run import CHECKPOINT, resumed


def same_state(first: Learner, second: Learner) -> bool:
    one, other = first.state(), second.state()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", ["er-0", "sncl-0", "icarl-0"])
def test_a_loaded_learner_learns_what_the_resumed_run_would(runs: Path, name: str) -> None:
    experiment = read_stored(runs / name).experiment
    stream = make_stream(experiment, None)
    wanted = make_learner(experiment, stream)
    resumed(wanted, runs / name, experiment.identity())
    learner = sncl.load(runs / name)
    assert same_state(learner, wanted)
    x, y = stream.batch(1, torch.arange(20))
    for each in (learner, wanted):
        each.learn(x, y)
    assert same_state(learner, wanted)
    assert torch.equal(learner.logits(x), wanted.logits(x))


def test_the_data_may_be_gone(tmp_path: Path) -> None:
    table = save_split(tmp_path / "table", gappy_flowers())
    folder = train_on(f"table:{table}", tmp_path / "run")
    run = load_run(folder, device="cpu")
    expected = [run.learner.logits(run.stream.test(task)[0]) for task in range(2)]
    shutil.rmtree(table)
    learner = sncl.load(folder)
    for task, wanted in enumerate(expected):
        assert torch.equal(learner.logits(run.stream.test(task)[0]), wanted)
    assert learner.preprocessing is not None and learner.preprocessing.class_names == run.stream.names


def test_an_unfinished_run_is_loaded_where_it_is(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "er-0", folder)
    (folder / "result.json").unlink()
    assert same_state(sncl.load(folder), sncl.load(runs / "er-0"))
    (folder / CHECKPOINT).unlink()
    with pytest.raises(SnclError, match=r"has no checkpoint\.safetensors yet"):
        sncl.load(folder)


def test_what_was_learned_since_is_saved_and_loaded_without_the_run(tmp_path: Path) -> None:
    folder = train_on(save_table(tmp_path / "t.csv", gappy_flowers()), tmp_path / "run")
    learner = sncl.load(folder)
    preprocessing = learner.preprocessing
    assert preprocessing is not None and preprocessing.encoder is not None
    rows = [{"sepal length": 5.0, "petal length": 2.0, "petal width": 1e9, "soil": "mud", "year": 2021}] * 2
    rows = [row | {"sepal width": None} for row in rows]
    before = preprocessing.inputs(rows)
    preprocessing.update(rows)  # a kind of soil that was never there
    learner.learn(preprocessing.inputs(rows), preprocessing.labels(["virginica", "setosa"]))
    learner.save(tmp_path / "later")
    kept = folder.rename(tmp_path / "elsewhere")
    again = sncl.load(tmp_path / "later")
    assert same_state(again, learner) and again.preprocessing is not None
    now = again.preprocessing.inputs(rows)
    assert torch.equal(now, preprocessing.inputs(rows)) and not torch.equal(now, before)
    assert again.steps == learner.steps
    earlier = sncl.load(kept)
    earlier.load(tmp_path / "later")  # the encoder comes along
    assert earlier.preprocessing is not None and torch.equal(earlier.preprocessing.inputs(rows), now)
    again.learn(now, [0, 1])
    again.save(tmp_path / "later")  # still knows where it comes from
    assert sncl.load(tmp_path / "later").steps == learner.steps + 1


def test_a_run_without_preprocessing_reads_its_data_again(tmp_path: Path) -> None:
    table = save_table(tmp_path / "flowers.csv")
    folder = train_on(table, tmp_path / "run")
    kept = sncl.load(folder).preprocessing
    (folder / PREPROCESSING).unlink()  # as runs of earlier versions are
    found = sncl.load(folder).preprocessing
    assert found is not None and kept is not None and found.to_json() == kept.to_json()
    table.unlink()
    with pytest.raises(SnclError, match=r"has no preprocessing\.json, as runs of earlier versions, so its data are"):
        sncl.load(folder)


def test_preprocessing_that_was_changed_or_belongs_elsewhere_is_refused(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "er-0", folder)
    path = folder / PREPROCESSING
    facts = json.loads(path.read_text())
    changes = {
        "checksum does not fit": facts | {"class_names": ["x"] * 6},
        "no preprocessing of a run": sealed({"format": 1}),
        "it has format 7": sealed(unsealed(facts) | {"format": 7}),
        "on other data": sealed(unsealed(facts) | {"data": "another"}),
        "names a form": sealed(unsealed(facts) | {"form": "film"}),
    }
    for message, content in changes.items():
        path.write_text(json.dumps(content))
        with pytest.raises(SnclError, match=message):
            sncl.load(folder)
    path.write_text("{")
    with pytest.raises(SnclError, match="damaged"):
        sncl.load(folder)


def test_other_files_say_what_reads_them(runs: Path, tmp_path: Path) -> None:
    from sncl import ContinualClassifier

    ContinualClassifier("er").fit([[0.0], [1.0]], ["a", "b"]).save(tmp_path / "estimator")
    with pytest.raises(SnclError, match=r"holds an estimator: read it with ContinualClassifier\.load\(path\)"):
        sncl.load(tmp_path / "estimator")
    learner = Learner(torch.nn.Linear(2, 2), "er", device="cpu")
    learner.learn(torch.rand(4, 2), [0, 1, 0, 1])
    learner.save(tmp_path / "learner")
    with pytest.raises(SnclError, match=r"make the learner as it was made, and call learner\.load\(path\)"):
        sncl.load(tmp_path / "learner")
    with pytest.raises(SnclError, match="name the folder of the run"):
        sncl.load(runs / "er-0" / CHECKPOINT)
    with pytest.raises(SnclError, match="no run folder"):
        sncl.load(tmp_path / "nowhere")
    with pytest.raises(SnclError, match=r"name one of the runs in it, such as .*/er-0"):
        sncl.load(runs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["sncl-0", "icarl-0"])
def test_a_run_of_the_cpu_goes_on_and_is_exported_on_a_gpu(runs: Path, tmp_path: Path, name: str) -> None:
    here, there = sncl.load(runs / name), sncl.load(runs / name, device="cuda")
    x, y = make_stream(read_stored(runs / name).experiment, None).batch(1, torch.arange(20))
    torch.testing.assert_close(there.logits(x).cpu(), here.logits(x), atol=1e-3, rtol=1e-3)
    there.learn(x, y)
    there.export(tmp_path / "model.pt2")
    found = torch.export.load(tmp_path / "model.pt2").module()(x)
    torch.testing.assert_close(found, there.logits(x).cpu(), atol=1e-3, rtol=1e-3)
    there.save(tmp_path / "saved")
    torch.testing.assert_close(sncl.load(tmp_path / "saved", device="cpu").logits(x), found, atol=1e-3, rtol=1e-3)

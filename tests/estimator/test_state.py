"""Estimators that were saved, pickled or copied go on bit for bit."""

from __future__ import annotations

import copy
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators import SMALL, Estimator, blobs, models
from resuming import same
from sklearn.base import clone
from torch import nn

from sncl import ContinualClassifier, Learner, SNCLClassifier, SnclError
from sncl.training.descent import Descending


def pickled(model: Estimator, folder: Path) -> Estimator:
    return pickle.loads(pickle.dumps(model))  # type: ignore[no-any-return]


def copied(model: Estimator, folder: Path) -> Estimator:
    return copy.deepcopy(model)


def saved(model: Estimator, folder: Path) -> Estimator:
    model.save(folder / "model.safetensors")
    return type(model).load(folder / "model.safetensors")


@pytest.mark.parametrize("keep", [pickled, copied, saved])
@pytest.mark.parametrize("model", models(), ids=lambda model: model._choice()[0])
def test_what_was_kept_goes_on_bit_for_bit(model: Estimator, keep: Any, tmp_path: Path) -> None:
    X, y = blobs()
    unbroken, first = clone(model), clone(model)
    for each in (unbroken, first):
        each.partial_fit(X[y < 2], y[y < 2])
        each.partial_fit(10 * X[y < 3][:20], y[y < 3][:20])  # has grown
    again = keep(first, tmp_path)
    assert (again.predict_proba(X) == unbroken.predict_proba(X)).all()
    for each in (unbroken, again):
        each.partial_fit(X, y)  # grows once more
    assert same(unbroken.learner_, again.learner_)
    assert (again.predict_proba(X) == unbroken.predict_proba(X)).all()
    assert again.get_params() == unbroken.get_params() and again.n_features_in_ == 6
    assert again.classes_.dtype == unbroken.classes_.dtype


def test_changed_parameters_count_from_the_next_fit_on_also_when_unpickled(tmp_path: Path) -> None:
    X, y = blobs()
    model = ContinualClassifier(**SMALL).fit(X, y)
    model.set_params(memory=7, hidden=3, lr=0.5)
    again = pickled(model, tmp_path)
    assert same(model.learner_, again.learner_) and again.learner_.lr == 0.1
    assert again.fit(X, y).learner_.memory.capacity == 7


def test_a_pickle_holds_plain_data_only() -> None:
    X, y = blobs()
    content = pickle.dumps(SNCLClassifier(**SMALL).fit(X, y))
    named = [
        argument for code, argument, _ in pickletools.genops(content) if code.name in ("SHORT_BINUNICODE", "GLOBAL")
    ]
    assert not any(str(name).startswith("torch") for name in named)
    assert b"network/0.weight" in content  # as safetensors


def test_a_file_keeps_labels_names_and_numbers_of_a_grid(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = blobs()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    for labels in (y.astype(str), y.astype(np.int16) * 100, y > 1, pandas.Series(y.astype(str)), y.astype(float)):
        model = ContinualClassifier(**SMALL | {"lr": np.float64(0.05), "memory": np.int64(20), "hidden": [9, 8]})
        model.fit(frame, labels).save(tmp_path / "model")
        again = ContinualClassifier.load(tmp_path / "model")
        assert again.classes_.dtype == model.classes_.dtype and (again.predict(frame) == model.predict(frame)).all()
        assert again.feature_names_in_.tolist() == list("abcdef") and again.hidden == (9, 8)


def test_a_file_says_what_is_wrong(tmp_path: Path) -> None:
    X, y = blobs()
    ContinualClassifier(**SMALL).fit(X, y).save(tmp_path / "plain")
    with pytest.raises(SnclError, match=r"plain holds a ContinualClassifier, not a SNCLClassifier"):
        SNCLClassifier.load(tmp_path / "plain")
    with pytest.raises(SnclError, match="had none: leave it out"):
        ContinualClassifier.load(tmp_path / "plain", network=nn.Linear(6, 4))
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    model = ContinualClassifier(network=net, **SMALL).fit(X, y)
    model.save(tmp_path / "own")
    with pytest.raises(SnclError, match=r"had a network of its own: give it, load\(path, network=\.\.\.\)"):
        ContinualClassifier.load(tmp_path / "own")
    again = ContinualClassifier.load(tmp_path / "own", network=net, device="cpu")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    with pytest.raises(SnclError, match="there is no checkpoint"):
        ContinualClassifier.load(tmp_path / "nothing")
    learner = Learner(net, "er", device="cpu")
    learner.prepare(X)
    learner.save(tmp_path / "learner")
    with pytest.raises(SnclError, match="learner holds no estimator, not a ContinualClassifier"):
        ContinualClassifier.load(tmp_path / "learner")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch's compiler
def test_an_estimator_of_a_gpu_answers_and_goes_on_elsewhere(tmp_path: Path) -> None:
    X, y = blobs()
    model = SNCLClassifier(**SMALL, device="cuda").fit(X[y < 3], y[y < 3])
    model.partial_fit(X, y)
    again = pickled(model, tmp_path)
    model.save(tmp_path / "model")
    here = SNCLClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(here.predict_proba(X), model.predict_proba(X), atol=1e-3)
    assert here.partial_fit(X, y).score(X, y) > 0.8
    model.partial_fit(X, y)
    assert same(model.learner_, again.partial_fit(X, y).learner_)


def test_momentum_and_decay_reach_the_learner_and_go_on_exactly(tmp_path: Path) -> None:
    X, y = blobs()
    forces = {"momentum": 0.9, "weight_decay": 0.01}
    usual, model = (ContinualClassifier("derpp", random_state=0, **given).fit(X, y) for given in ({}, forces))
    assert model.learner_.make_optimizer == Descending(0.9, 0.01)
    assert any(name.startswith("optimizer/") for name in model.learner_.state())
    assert not np.array_equal(model.predict_proba(X), usual.predict_proba(X))
    model.save(tmp_path / "a")
    for twin in (ContinualClassifier.load(tmp_path / "a"), pickle.loads(pickle.dumps(model))):
        assert twin.get_params()["momentum"] == 0.9
        np.testing.assert_array_equal(
            twin.partial_fit(X[:16], y[:16]).predict_proba(X),
            pickle.loads(pickle.dumps(model)).partial_fit(X[:16], y[:16]).predict_proba(X),
        )


def test_a_pickle_from_before_there_was_momentum_has_none() -> None:
    X, y = blobs()
    model = ContinualClassifier("derpp", epochs=1, random_state=0).fit(X, y)
    state = model.__getstate__()
    for name in ("momentum", "weight_decay"):
        del state[name]
    twin = ContinualClassifier.__new__(ContinualClassifier)
    twin.__setstate__(state)
    assert twin.get_params() == model.get_params()

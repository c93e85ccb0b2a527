"""Weights of classes and samples in the estimators, beside scikit-learn's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators import Estimator
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from sncl import ContinualClassifier, SNCLClassifier, SnclError
from sncl.errors import BadInput

Floats = NDArray[np.float64]


def uneven(rows: int = 300, seed: int = 0) -> tuple[Floats, NDArray[Any]]:
    """Three kinds that overlap, of which one is rare and one common."""
    X, y = make_classification(
        rows, 6, n_informative=4, n_classes=3, weights=[0.85, 0.1], class_sep=0.8, random_state=seed
    )
    return X, np.array(["common", "rare", "rarest"])[y]


def small(kind: str = "er", **changed: Any) -> Estimator:
    """A quick estimator whose memory has room for everything."""
    usual: dict[str, Any] = {"hidden": 16, "epochs": 2, "memory": 1000, "random_state": 0}
    return SNCLClassifier(**usual | changed) if kind == "sncl" else ContinualClassifier(kind, **usual | changed)


def stored(model: Estimator, labels: list[Any]) -> dict[Any, set[float]]:
    """The weights the memory holds, by label."""
    assert model.learner_.memory is not None
    content = model.learner_.memory.content()
    outputs = dict(zip(model._outputs.tolist(), model.classes_.tolist(), strict=True))
    found: dict[Any, set[float]] = {label: set() for label in labels}
    for label, weight in zip(content["y"].tolist(), content["weight"].tolist(), strict=True):
        found[outputs[label]].add(round(weight, 5))
    return found


@pytest.mark.parametrize("kind", ["er", "sncl"])
def test_balanced_in_fit_is_scikit_learns(kind: str) -> None:
    X, y = uneven()
    classes = np.unique(y)
    expected = compute_class_weight("balanced", classes=classes, y=y)
    found = stored(small(kind, class_weight="balanced").fit(X, y), classes.tolist())
    assert [found[label] for label in classes.tolist()] == [{round(float(weight), 5)} for weight in expected]


def test_given_weights_are_multiplied_and_their_mean_is_one() -> None:
    X, y = uneven()
    chosen, given = {"common": 1.0, "rare": 4.0, "rarest": 9.0}, np.random.default_rng(0).random(len(y))
    expected = compute_sample_weight(chosen, y) * given
    model = small(class_weight=chosen).fit(X, y, sample_weight=given)
    assert model.learner_.memory is not None
    content = model.learner_.memory.content()
    weights = {
        tuple(row): weight for row, weight in zip(content["x"].tolist(), content["weight"].tolist(), strict=True)
    }
    rows = model._spec.samples(X).tolist()
    assert [weights[tuple(row)] for row in rows] == pytest.approx((expected / expected.mean()).tolist(), rel=1e-5)


def test_balanced_in_a_stream_counts_what_was_seen() -> None:
    X, y = uneven(120)
    X, y = X[np.argsort(y, kind="stable")], np.sort(y)
    model, seen, expected = small(class_weight="balanced", replay=1), [], {}
    parts = [slice(0, 40), slice(40, 105), slice(105, 115), slice(115, 120)]
    for part in parts:
        model.partial_fit(X[part], y[part])
        seen += y[part].tolist()
        for label in np.unique(y[part]).tolist():  # samples / (classes so far * samples of the class so far)
            expected.setdefault(label, set()).add(round(len(seen) / len(set(seen)) / seen.count(label), 5))
    assert stored(model, sorted(expected)) == expected


@pytest.mark.parametrize("kind", ["er", "sncl", "sgd"])
def test_weights_that_are_all_the_same_change_nothing(kind: str) -> None:
    X, y = uneven()
    plain, same, scaled, named = (small(kind) for _ in range(4))
    named.set_params(class_weight=dict.fromkeys(np.unique(y).tolist(), 4.0))
    plain.fit(X, y)
    same.fit(X, y, sample_weight=np.ones(len(y)))
    scaled.fit(X, y, sample_weight=[1024] * len(y))  # in the thousands, as those of a survey
    named.fit(X, y)
    for model in (same, scaled, named):
        np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("kind", ["derpp", "sncl"])
def test_balanced_weights_find_the_rare_classes(kind: str) -> None:
    X, y = uneven(1200)
    train, test = slice(0, 800), slice(800, None)
    answers = [
        small(kind, epochs=5, memory=200, class_weight=chosen).fit(X[train], y[train]).predict(X[test])
        for chosen in (None, "balanced")
    ]
    recalls = [recall_score(y[test], each, average=None) for each in answers]
    assert recalls[1][1:].mean() > recalls[0][1:].mean() + 0.1
    assert balanced_accuracy_score(y[test], answers[1]) > balanced_accuracy_score(y[test], answers[0])


@pytest.mark.parametrize("chosen", ["balanced", {0: 1.0, 2: 3.5}])
def test_an_estimator_that_was_saved_or_pickled_weighs_on_as_before(chosen: Any, tmp_path: Path) -> None:
    X, names = uneven(200)
    y = np.unique(names, return_inverse=True)[1]
    X, y = X[np.argsort(y, kind="stable")], np.sort(y)
    given = np.random.default_rng(0).random(len(y))
    model = small("sncl", class_weight=chosen, memory=50)
    model.partial_fit(X[:150], y[:150], sample_weight=given[:150])
    model.save(tmp_path / "model")
    others = [type(model).load(tmp_path / "model"), pickle.loads(pickle.dumps(model))]
    assert all(each.class_weight == chosen for each in others)
    for each in (model, *others):
        each.partial_fit(X[150:], y[150:], sample_weight=given[150:])
    for each in others:
        ours, theirs = model.learner_.state(), each.learner_.state()
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_fit_counts_anew() -> None:
    X, y = uneven()
    model = small(class_weight="balanced").fit(X, y)
    again = clone(model).partial_fit(X[y == "rare"], y[y == "rare"]).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


def test_weights_are_a_parameter_like_the_others() -> None:
    X, y = uneven()
    search = GridSearchCV(small(), {"class_weight": [None, "balanced", {"rare": 2.0}]}, cv=2, error_score="raise")
    search.fit(X, y, sample_weight=np.ones(len(y)))
    assert search.best_params_["class_weight"] in (None, "balanced", {"rare": 2.0})


@pytest.mark.parametrize(
    ("chosen", "given", "words"),
    [
        ("even", None, "`class_weight` is None, \"balanced\" or a dictionary of labels and weights, not 'even'"),
        ({"rare": -1.0}, None, "`class_weight` names a finite number of at least 0 for each label"),
        ({"rare": "much"}, None, "`class_weight` names a finite number"),
        (None, [1.0], r"`sample_weight` is one number for each of the 300 samples, not \[1\] of float64"),
        (None, [["a"]] * 300, "`sample_weight` is one number for each of the 300 samples"),
        (None, [-1.0] * 300, "`sample_weight` holds finite numbers of at least 0"),
        (None, [np.nan] * 300, "`sample_weight` holds finite numbers of at least 0"),
        (None, [0.0] * 300, "`sample_weight` is zero for every sample"),
    ],
)
def test_what_is_no_weight_is_refused(chosen: Any, given: Any, words: str) -> None:
    X, y = uneven()
    model = small(class_weight=chosen)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(BadInput, match=words):
            learn(X, y, sample_weight=given)
        assert not hasattr(model, "learner_")


def test_a_method_without_weights_says_so() -> None:
    X, y = uneven()
    with pytest.raises(SnclError, match="ICaRL takes no weights of samples; leave them out"):
        small("icarl", class_weight="balanced").fit(X, y)

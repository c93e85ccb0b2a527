"""Estimators on tables as they come: encoded as on the command line, learned with partial_fit, kept with the model."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators import SMALL, Estimator, blobs
from mixed_tables import KINDS, LABELS, fruit, save_fruit
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import sncl
from sncl import ContinualClassifier, SNCLClassifier
from sncl.errors import BadInput
from sncl.estimator.state import StatefulEstimator


def frame(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.DataFrame(rows)
    return table.drop(columns="kind"), table["kind"].to_numpy(dtype=str)


def encoded(model: Estimator, X: Any) -> np.ndarray:
    return model._encoded(model._validated_inputs(X), model.encoder_, learn=False)


def assert_same(one: StatefulEstimator, other: StatefulEstimator) -> None:
    """Equal in all that they know."""
    (tensors, description), (others, of_other) = one._state(), other._state()
    assert description == of_other and tensors.keys() == others.keys()
    assert all(value.equal(others[name]) for name, value in tensors.items())


@pytest.mark.parametrize("kind", [SNCLClassifier, ContinualClassifier])
def test_a_frame_of_texts_dates_and_gaps_is_learned(kind: type[Estimator]) -> None:
    X, y = frame(fruit(400))
    model = kind(random_state=0, epochs=8).fit(X[:300], y[:300])
    assert model.encoder_ is not None and model.encoder_.columns == {"row": "ignored", **KINDS}
    assert model.n_features_in_ == 6 and model.feature_names_in_.tolist() == list(X.columns)
    assert model.score(X[300:], y[300:]) > 0.8


def test_the_command_line_encodes_as_an_estimator_does(tmp_path: Path) -> None:
    rows = fruit()
    stream = sncl.stream(str(save_fruit(tmp_path / "fruit.csv", rows)), split="4x1")
    X, y = frame(rows)
    model, part = ContinualClassifier(**SMALL), []
    by_weight = {row["weight"]: place for place, row in enumerate(rows)}
    assert stream.encoder is not None and stream.preprocessing is not None and stream.preprocessing.scale is not None
    weight = stream.encoder.names.index("weight")
    weights = stream.preprocessing.scale.inverse(stream.x)[:, weight].tolist()
    known = np.array(list(by_weight))
    places = [by_weight[float(known[np.abs(known - value).argmin()])] for value in weights]
    for phase in stream.phases:
        part = [places[row] for row in phase.rows.tolist()]
        model.partial_fit(X.iloc[part], y[part])
    assert model.encoder_ is not None
    assert model.encoder_.to_json() == stream.encoder.to_json()  # every mean, every place, bit for bit
    taught = stream.preprocessing.scale.inverse(stream.x[stream.phases[-1].rows]).numpy()
    np.testing.assert_allclose(taught, encoded(model, X.iloc[part]), rtol=1e-5, atol=1e-4)


def test_new_categories_come_with_partial_fit() -> None:
    X = pd.DataFrame({"colour": ["red", "blue"] * 20, "size": np.arange(40) % 7})
    y = np.array([0, 1] * 20)
    model = ContinualClassifier("er", **SMALL).partial_fit(X, y)
    width = encoded(model, X).shape[1]
    unseen = pd.DataFrame({"colour": ["green", None], "size": [1, 2]})
    assert not encoded(model, unseen)[:, :16].any()
    for _ in range(30):
        model.partial_fit(pd.DataFrame({"colour": ["green"] * 8, "size": np.arange(8) % 7}), [2] * 8)
    assert encoded(model, unseen).shape[1] == width and encoded(model, unseen)[0, 2] == 1
    assert model.predict(unseen[:1]).tolist() == [2]


@pytest.mark.parametrize("way", ["pickle", "save", "deepcopy", "copy"])
def test_a_table_goes_on_bit_for_bit(tmp_path: Path, way: str) -> None:
    X, y = frame(fruit())
    model = SNCLClassifier(ignore=["weight"], categories=["ripe"], **SMALL).partial_fit(X[:60], y[:60], classes=LABELS)
    if way == "save":
        model.save(tmp_path / "m.safetensors")
        other = SNCLClassifier.load(tmp_path / "m.safetensors")
    else:
        make = {"pickle": lambda each: pickle.loads(pickle.dumps(each)), "deepcopy": copy.deepcopy, "copy": copy.copy}
        other = make[way](model)
    before = other.predict_proba(X)
    model.partial_fit(X[60:], y[60:])
    assert (other.predict_proba(X) == before).all()  # what one learns, the other does not
    other.partial_fit(X[60:], y[60:])
    assert_same(model, other)
    assert (model.predict_proba(X) == other.predict_proba(X)).all()


def test_numbers_with_gaps() -> None:
    X, y = blobs()
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    model = ContinualClassifier(**SMALL | {"epochs": 20}).fit(holes, y)
    assert model.score(holes, y) > 0.9
    assert encoded(model, holes).shape == (120, 12)  # a column says what was missing
    complete = ContinualClassifier(**SMALL).fit(X, y)
    filled = encoded(complete, np.full((1, 6), np.nan))
    np.testing.assert_allclose(filled[0], X.mean(0))
    assert complete.predict(holes).shape == (120,)
    as_objects = holes.astype(object)
    as_objects[np.isnan(holes)] = None
    again = ContinualClassifier(**SMALL | {"epochs": 20}).fit(as_objects, y)
    assert (encoded(again, as_objects) == encoded(model, holes)).all()


def test_sparse_matrices_are_learned_as_dense_ones() -> None:
    texts = np.random.default_rng(0).choice(["a", "b", "c"], size=(90, 2))
    X, y = OneHotEncoder().fit_transform(texts), (texts[:, 0] == texts[:, 1]).astype(int)
    assert sparse.issparse(X)
    one, other = (ContinualClassifier(**SMALL).fit(each, y) for each in (X, X.toarray()))
    assert_same(one, other)
    assert (one.predict_proba(sparse.coo_array(X)) == other.predict_proba(X.toarray())).all()


def test_a_sparse_matrix_is_predicted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    model = ContinualClassifier(**SMALL).fit(X, y)
    whole = model.predict_proba(sparse.csr_array(X))
    sizes: list[int] = []
    samples = type(model._spec).samples
    monkeypatch.setattr(type(model._spec), "samples", lambda spec, X: sizes.append(len(X)) or samples(spec, X))
    monkeypatch.setattr("sncl.estimator.inputs.NUMBERS_AT_ONCE", 6 * 50)
    np.testing.assert_allclose(model.predict_proba(sparse.csc_array(X)), whole, rtol=1e-6)
    assert sizes == [50, 50, 20]
    monkeypatch.setattr("sncl.tensors.room.available_memory", lambda: 2**20)
    with pytest.raises(BadInput, match=r"a sparse matrix of 1000000 x 6 .* GiB.*; give fewer rows at a time"):
        model.partial_fit(sparse.csr_array((10**6, 6)), np.zeros(10**6, dtype=int))


def test_rows_of_dictionaries_and_of_lists() -> None:
    rows = fruit()
    X, y = [{name: row[name] for name in KINDS} for row in rows], [row["kind"] for row in rows]
    model = ContinualClassifier(**SMALL).fit(X, y)
    assert model.feature_names_in_.tolist() == list(KINDS)
    listed = ContinualClassifier(**SMALL).fit([list(row.values()) for row in X], y)
    assert (encoded(listed, [list(row.values()) for row in X]) == encoded(model, X)).all()
    assert model.predict(X[:3]).shape == (3,)


def test_columns_are_named_by_name_or_place() -> None:
    X = pd.DataFrame({"code": [1, 2, 3] * 10, "id": np.arange(30) * 3, "size": np.linspace(0, 1, 30)})
    y = np.arange(30) % 2
    kinds = {"categories": ["code"], "numbers": ["id"], "ignore": ["size"]}
    model = ContinualClassifier(**SMALL, **kinds).fit(X, y)
    assert model.encoder_ is not None
    assert model.encoder_.columns == {"code": "category", "id": "number", "size": "ignored"}
    places = clone(model).set_params(categories=[0], numbers=[1], ignore=[-1]).fit(X, y)
    assert places.encoder_ is not None and places.encoder_.to_json() == model.encoder_.to_json()
    array = ContinualClassifier(**SMALL, categories=[0]).fit(X.to_numpy(), y)
    assert array.encoder_ is not None
    assert list(array.encoder_.columns.values()) == ["category", "number", "number"]  # without names there are no ids
    for wrong, words in (("code", r"in a list, as in \['code'\]"), ([7], "no column 7"), (["x"], "no column 'x'")):
        with pytest.raises(BadInput, match=words):
            ContinualClassifier(**SMALL, categories=wrong).fit(X, y)


def test_an_id_is_left_out_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    X = pd.DataFrame({"id": np.arange(40), "size": np.linspace(0, 1, 40)})
    model = ContinualClassifier(**SMALL, verbose=1).fit(X, np.arange(40) % 2)
    assert "'id' is left out: it only counts the rows" in capsys.readouterr().out
    assert model.n_features_in_ == 2 and encoded(model, X).shape == (40, 1)


def test_a_table_that_changes_its_mind_is_refused_and_nothing_changes() -> None:
    X, y = frame(fruit())
    model = ContinualClassifier(**SMALL).partial_fit(X, y)
    before = copy.deepcopy(model)
    for column, value, words in (
        ("weight", "heavy", "'weight' holds numbers, but 'heavy' in row 3"),
        ("picked", "soon", "'picked' holds dates, but 'soon' in row 3"),
        ("weight", np.inf, "'weight' holds inf in row 3"),
        ("colour", 1j, "'colour' holds a complex"),
    ):
        spoilt = X[:5].astype(object)
        spoilt.iloc[2, spoilt.columns.get_loc(column)] = value
        with pytest.raises((ValueError, TypeError), match=words):
            model.partial_fit(spoilt, ["another"] * 5)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(X.rename(columns={"size": "width"}), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.partial_fit(X, y[:5])
    assert_same(model, before)


def test_images_of_a_network_of_your_own_are_not_encoded() -> None:
    images = np.random.default_rng(0).random((20, 1, 4, 4))
    model = ContinualClassifier(network=nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), **SMALL)
    model.fit(images, np.arange(20) % 2)
    assert model.encoder_ is None
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(np.full_like(images, np.nan))


def test_a_network_of_your_own_learns_a_table() -> None:
    X, y = frame(fruit())
    widths = []

    def network(features: int, classes: int) -> nn.Module:
        widths.append(features)
        return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, classes))

    model = ContinualClassifier(network=network, **SMALL).fit(X, y)
    assert model.encoder_ is not None and set(widths) == {model.encoder_.width}


@pytest.mark.parametrize("method", ["oewc", "lwf"])
def test_methods_that_are_told_of_boundaries_learn_tables(method: str) -> None:
    X, y = frame(fruit())
    model = ContinualClassifier(method, **SMALL | {"epochs": 1}).fit(X, y)
    assert model.learner_.tasks == 1
    model.partial_fit(X, y).boundary(X, y)
    assert model.learner_.tasks == 2 and model.predict(X).shape == (160,)


def test_columns_of_0_and_1_keep_their_scale() -> None:
    X, y = frame(fruit())
    model = ContinualClassifier(**SMALL).fit(X, y)
    assert model._scale is not None and model.encoder_ is not None
    scaled = model._scale.eval(model._spec.samples(encoded(model, X))).numpy()
    binary = model.encoder_.binary
    np.testing.assert_array_equal(scaled[:, binary], encoded(model, X)[:, binary].astype(np.float32))
    np.testing.assert_allclose(scaled[:, ~binary].mean(0), 0, atol=1e-5)

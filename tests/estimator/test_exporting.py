"""``estimator.export``: the scale inside, and logits in the order of ``classes_``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from sncl import ContinualClassifier, SNCLClassifier
from sncl.tables import TableEncoder, columns_of


def test_an_estimator_that_met_its_classes_out_of_order(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    X = X * [1, 100, 1, 1] + [0, 0, 1e9, 0]
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = SNCLClassifier(random_state=0)
    for name in ("virginica", "setosa", "versicolor"):
        model.partial_fit(X[names == name], names[names == name])
    model.export(tmp_path / "model.onnx")
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "model.onnx"))
    metadata = session.get_modelmeta().custom_metadata_map
    assert session.get_inputs()[0].type == "tensor(double)"
    assert json.loads(metadata["class_names"]) == model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    logits = session.run(["logits"], {"rows": X})[0]
    assert (model.classes_[logits.argmax(1)] == model.predict(X)).all()
    chances = torch.from_numpy(logits).double().softmax(1).numpy()
    np.testing.assert_allclose(chances, model.predict_proba(X), atol=1e-5)


def test_given_samples_are_compared(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    model = ContinualClassifier("sgd", random_state=0).fit(X, X[:, 0] > 0)
    model.export(tmp_path / "model.pt2", X)
    texts = {"class_names": ""}
    found = torch.export.load(tmp_path / "model.pt2", extra_files=texts).module()(torch.from_numpy(X))
    assert json.loads(texts["class_names"]) == ["False", "True"]
    assert (found.argmax(1).numpy() == model.predict(X)).all()
    with pytest.raises(NotFittedError):
        ContinualClassifier("er").export(tmp_path / "nothing.pt2")


def test_a_table_with_texts_and_gaps_is_encoded_by_what_the_file_says(tmp_path: Path) -> None:
    rows = [
        {"size": None if number % 9 == 0 else number % 7, "soil": ["clay", "sand", "loam"][number % 3]}
        for number in range(60)
    ]
    labels = ["dry" if row["soil"] == "sand" else "wet" for row in rows]
    model = ContinualClassifier("er", epochs=5, random_state=0).fit(rows, labels)
    model.export(tmp_path / "model.pt2", rows)
    texts = {"class_names": "", "preprocessing": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=texts).module()
    facts = json.loads(texts["preprocessing"])
    encoder = TableEncoder.from_json(facts["encoder"])
    new = [*rows[:20], {"size": 3, "soil": "mud"}]  # also a category that was never there
    x = torch.from_numpy(encoder.encode(columns_of(new)))
    signature = x.float() if model._spec.dtype == "float32" else x
    chances = program(signature).double().softmax(1).detach().numpy()
    np.testing.assert_allclose(chances, model.predict_proba(new), atol=1e-5)
    assert json.loads(texts["class_names"]) == ["dry", "wet"]

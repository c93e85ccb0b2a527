"""Which models can be served: runs, learners of one's own and estimators, each with its own labels and rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Sncl
from servers import DIGITS, LABELS, same_state, small_model

import sncl
from sncl import ContinualClassifier, Learner, SNCLClassifier
from sncl.errors import SnclError
from sncl.networks.mlp import MLP
from sncl.serving import make_app
from sncl.serving.opening import open_model, served
from sncl.serving.refusals import RequestRefused
from sncl.serving.requests import LearnRequest, PredictRequest
from sncl.serving.service import Service
from sncl.tensors.fields import Fields


def same(one: Fields, other: Fields) -> bool:
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


def test_a_run_goes_on_learning_with_its_own_preprocessing(runs: Path, tmp_path: Path) -> None:
    model, beside = open_model(runs / "er-0")
    assert isinstance(model, Learner) and beside == runs / "er-0" / "serving.safetensors"
    by_hand = sncl.load(runs / "er-0")
    images = np.arange(5 * 64).reshape(5, 1, 8, 8) % 17
    x = by_hand.preprocessing.inputs(images.astype("uint8"))
    service = Service(served(model), tmp_path / "run.safetensors")
    service.start()
    answer = service.predict(PredictRequest(images.tolist(), probabilities=True))
    names = by_hand.preprocessing.class_names
    assert answer["predictions"] == [names[each] for each in by_hand.predict(x)] and answer["classes"] == list(names)
    service.learn(LearnRequest([3, "4", "0", "1", "2"], ids=answer["ids"], wait=True))
    by_hand.learn(x, torch.tensor([3, 4, 0, 1, 2]))
    with pytest.raises(RequestRefused, match="'cat', 77; the classes of this run are 0, 1, 2") as refused:
        service.learn(LearnRequest(["cat", "1", 77, "cat", "0"], rows=images.tolist()))
    assert refused.value.status == 422 and refused.value.more == {"labels": ["cat", 77]}
    for rows, words in (([[1, 2]], "shape"), ((images + 0.5).tolist(), "whole numbers from 0 to 255")):
        with pytest.raises(RequestRefused, match=words):
            service.predict(PredictRequest(rows))
    service.close()
    stored = sncl.load(tmp_path / "run.safetensors")  # of the server, without the folder of the run
    assert same(stored.state(), by_hand.state()) and stored.preprocessing.class_names == names
    again, itself = open_model(tmp_path / "run.safetensors")
    assert itself == tmp_path / "run.safetensors"
    service = Service(served(again), itself)
    assert service.teacher.learned == 5 and service.ledger.score.labelled == 5
    service.close()


def test_a_run_on_a_table(sncl: Sncl, tmp_path: Path) -> None:
    lines = [f"{['red', 'blue'][n % 2]},{1.5 * (n % 7)},{['warm', 'cold'][n % 2]}" for n in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["colour,size,feeling", *lines]))
    done = sncl("train", "--stream", "table.csv", "--method", "er", "--epochs", "1", "--out", "run", "--device", "cpu")
    assert done.code == 0, done.err
    model, snapshot = open_model(tmp_path / "run")
    service = Service(served(model), snapshot)
    service.start()
    rows: list[Any] = [{"colour": "red", "size": 3.0}, {"colour": "blue", "size": None}]
    asked = service.predict(PredictRequest(rows))
    assert asked["predictions"] == service.predict(PredictRequest([["red", 3.0], ["blue", None]]))["predictions"]
    assert set(asked["predictions"]) <= {"warm", "cold"}
    service.learn(LearnRequest(["warm", "cold"], ids=asked["ids"], wait=True))
    service.learn(LearnRequest(["warm"], rows=[{"colour": "green", "size": 1}], wait=True))
    with pytest.raises(RequestRefused, match="the classes of this run are cold, warm"):
        service.learn(LearnRequest(["hot"], rows=rows[:1]))
    with pytest.raises(RequestRefused, match="size"):
        service.predict(PredictRequest([{"colour": "red"}]))
    assert (service.teacher.learned, service.teacher.refused) == (3, 0)
    before = service.predict(PredictRequest(rows, probabilities=True, keep=False))
    service.close()
    again = Service(served(open_model(tmp_path / "run").model), snapshot)
    assert again.predict(PredictRequest(rows, probabilities=True, keep=False)) == before
    again.close()


def learner(grow: bool = False) -> Learner:
    torch.manual_seed(0)
    made = Learner(MLP(64, 5, width=16), "er", memory=20, replay=8, device="cpu", grow=grow)
    made.learn(DIGITS[:8] / 16, LABELS[:8] % 5)
    return made


@pytest.mark.parametrize("grow", [False, True])
def test_a_learner_has_classes_by_number(tmp_path: Path, grow: bool) -> None:
    rows = (DIGITS[:4] / 16).tolist()
    service = Service(served(learner(grow)), tmp_path / "learner.safetensors")
    service.start()
    answer = service.predict(PredictRequest(rows))
    assert answer["predictions"] == learner(grow).predict(torch.tensor(rows)).tolist()
    new = LearnRequest([0, 1, 2, 7], ids=answer["ids"], wait=True)
    by_hand = learner(grow)
    if grow:
        assert service.learn(new)["learned"] == 4
        by_hand.learn(torch.tensor(rows), torch.tensor([0, 1, 2, 7]))
        assert 7 in service.predict(PredictRequest(rows, probabilities=True))["classes"]
    else:
        with pytest.raises(RequestRefused, match="7; classes are the numbers 0 to 4"):
            service.learn(new)
        service.learn(new._replace(labels=[0, 1, 2, 3]))
        by_hand.learn(torch.tensor(rows), torch.tensor([0, 1, 2, 3]))
    service.close()
    resumed = Service(served(learner(grow)), tmp_path / "learner.safetensors")
    assert same(resumed.teacher.model.learner.state(), by_hand.state())
    resumed.close()


def test_several_inputs_by_name(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = torch.nn.Embedding(10, 4), torch.nn.Linear(6, 3)

        def forward(self, tokens: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            return self.out(torch.cat([self.words(tokens).mean(1), values], 1))

    made = Learner(Two(), "er", memory=10, device="cpu")
    made.learn({"tokens": torch.tensor([[1, 2, 3]] * 4), "values": torch.rand(4, 2)}, torch.tensor([0, 1, 2, 0]))
    service = Service(served(made))
    assert len(service.predict(PredictRequest([{"tokens": [1, 2, 3], "values": [1, 0]}]))["predictions"]) == 1
    for row in ({"tokens": [1, 2, 3]}, {"tokens": [1, 2, 0.5], "values": [1, 0]}, [1, 2]):
        with pytest.raises(RequestRefused, match="do not fit"):
            service.predict(PredictRequest([row]))


LABELS_OF: dict[str, tuple[list[Any], list[Any], list[Any]]] = {  # those it knows, those it can learn, others
    "texts": (["cat", "dog"], ["cat", "a much longer one"], [1, True]),
    "whole numbers": ([1, 2], [1, 3, 4.0], ["1", 1.5, True]),
    "truth": ([True, False], [True], ["true", 1]),
}


@pytest.mark.parametrize("kind", LABELS_OF)
def test_labels_of_any_kind(kind: str) -> None:
    known, fine, wrong = LABELS_OF[kind]
    rows = np.arange(8.0).reshape(4, 2)
    model = ContinualClassifier("er", memory=10, random_state=0).partial_fit(rows, np.array(known * 2))
    service = Service(served(model))
    service.start()
    predicted = service.predict(PredictRequest(rows.tolist()))["predictions"]
    assert all(type(each) is type(known[0]) and each in known for each in predicted)
    for label in fine:
        assert service.learn(LearnRequest([label], rows=[[0, 1]], wait=True))["learned"] == 1
    for label in wrong:
        with pytest.raises(RequestRefused, match="cannot be learned"):
            service.learn(LearnRequest([label], rows=[[0, 1]]))
    assert set(model.classes_) == {*known, *fine} and service.teacher.refused == 0
    assert model.classes_.dtype.kind == np.array(known).dtype.kind
    service.close()


def test_tables_as_they_are(tmp_path: Path) -> None:
    """Texts, gaps and new categories, by name or in order; what is learned of them is kept."""
    rows: list[Any] = [{"colour": ["red", "blue"][n % 2], "size": 1.5 * (n % 7), "seen": n % 3 == 0} for n in range(40)]
    labels = ["warm" if n % 2 == 0 else "cold" for n in range(40)]
    model = SNCLClassifier(memory=20, random_state=0).partial_fit(rows, labels)
    model.save(tmp_path / "table.safetensors")
    by_hand = SNCLClassifier.load(tmp_path / "table.safetensors")
    service = Service(served(open_model(tmp_path / "table.safetensors").model), tmp_path / "kept.safetensors")
    service.start()
    found = service.predict(PredictRequest(rows[:4], probabilities=True))
    assert found["probabilities"] == by_hand.predict_proba(rows[:4]).tolist()
    in_order = service.predict(PredictRequest([list(row.values()) for row in rows[:4]]))
    assert in_order["predictions"] == found["predictions"]
    new: list[Any] = [{"colour": "green", "size": None, "seen": True}, {"colour": None, "size": 3, "seen": False}]
    service.learn(LearnRequest(["warm", "mild"], rows=new, wait=True))
    by_hand.partial_fit(new, ["warm", "mild"])
    for wrong in ({"colour": "red", "seen": True}, {"colour": "red", "size": "large", "seen": True}):
        with pytest.raises(RequestRefused, match="size"):
            service.learn(LearnRequest(["warm"], rows=[wrong]))
    assert service.teacher.refused == 0
    service.close()
    kept = SNCLClassifier.load(tmp_path / "kept.safetensors")
    assert same_state(kept, by_hand) and kept.state()[1]["encoder"] == by_hand.state()[1]["encoder"]


def test_a_snapshot_of_an_estimator_only_predicts_and_stays_as_it_is() -> None:
    model = small_model()
    frozen, before = model.snapshot(), model.predict_proba(DIGITS)
    with model.exclusively():
        assert (frozen.predict_proba(DIGITS) == before).all()
    model.partial_fit(DIGITS[:50], LABELS[:50])
    assert (frozen.predict_proba(DIGITS) == before).all() and frozen.classes_.tolist() == [0, 1, 2, 3, 4]
    assert (frozen.predict(DIGITS) != model.predict(DIGITS)).any()


def test_what_cannot_be_served_is_said(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SnclError, match="learned nothing yet"):
        make_app(SNCLClassifier())
    with pytest.raises(SnclError, match="not int"):
        make_app(3)  # type: ignore[arg-type]
    with pytest.raises(SnclError, match="`every` is at least 1"):
        make_app(small_model(), every=0)
    with pytest.raises(SnclError, match="`queue` is at least 1"):
        make_app(small_model(), queue=0)
    own = SNCLClassifier(network=MLP(64, 10, width=8), random_state=0).fit(DIGITS[:50], LABELS[:50])
    own.save(tmp_path / "own.safetensors")
    with pytest.raises(SnclError, match=r"network of your own, .* serve\(estimator\)"):
        open_model(tmp_path / "own.safetensors")
    small_model().save(tmp_path / "plain.safetensors")
    with pytest.raises(SnclError, match="no snapshot of a server"):
        make_app(small_model(), snapshot=tmp_path / "plain.safetensors")
    assert same_state(SNCLClassifier.load(tmp_path / "plain.safetensors"), small_model())  # as it was

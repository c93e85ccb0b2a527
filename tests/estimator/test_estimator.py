"""The scikit-learn estimators: scikit-learn's own checks, and what continual learning adds to them."""

from __future__ import annotations

import copy
import doctest
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators import SMALL, Estimator, blobs, models
from resuming import same
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

import sncl.estimator.classifier
from sncl import ContinualClassifier, SNCLClassifier, SnclError
from sncl.errors import BadInput, Diverged
from sncl.estimator.inputs import are_among
from sncl.methods.sncl import SNCL
from sncl.methods.table import METHODS
from sncl.networks.gating.attach import open_neurons
from sncl.networks.gating.policies import KL, Grow

USABLE = [name for name in METHODS if name not in ("joint", "pnn")]


def expected_to_fail(estimator: Estimator) -> dict[str, str]:
    reason = (
        "a sample of weight 0 or 2 is not one that is left out or comes twice: order, batches, replay and memory are "
        "drawn for the samples there are"
    )
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [SNCLClassifier(hidden=32, epochs=5), ContinualClassifier(hidden=32, epochs=5)],
    expected_failed_checks=expected_to_fail,
)
def test_scikit_learns_own_checks(estimator: Estimator, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        SNCLClassifier(),
        *(ContinualClassifier(name, settings=None) for name in ("derpp", "er", "er-ace", "sgd", "oewc")),
    ],
    expected_failed_checks=expected_to_fail,
)
def test_scikit_learns_own_checks_with_the_defaults(estimator: Estimator, check: Any) -> None:
    check(estimator)


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", models(), ids=lambda model: model._choice()[0])
def test_classes_of_any_kind_come_at_any_time(model: Estimator) -> None:
    X, y = blobs()
    names = np.array(["kiwi", "fig", "watermelon", "apple"])
    for number in range(4):  # not in the order of the alphabet
        model.partial_fit(X[y == number], names[y[y == number]])
        assert model.classes_.tolist() == sorted(names[: number + 1])
        answers = model.predict_proba(X)
        assert answers.shape == (120, number + 1)
        np.testing.assert_allclose(answers.sum(1), 1)
        assert (model.predict(X) == model.classes_[answers.argmax(1)]).all()
    assert model.learner_.grown == [2, 3, 4]
    assert model.score(X[y == 3], names[y[y == 3]]) > 0.9


@pytest.mark.parametrize("classes", [[1, 3, 5], ["b", "dd", "f"], [0.5, 1.0, 2.5], [False, True]])
def test_a_label_by_itself_is_known_as_among_others(classes: list[Any]) -> None:
    known = np.array(classes)
    others = {"i": [0, 2, 6], "f": [0.0, 2.0, 6.0], "U": ["a", "c", "g", "d"], "b": []}[known.dtype.kind]
    for label in (*classes, *others):
        alone = np.array([label])
        assert are_among(alone, known) == are_among(np.array([label, classes[0]]), known) == (label in classes)


def test_replay_remembers_where_plain_training_forgets() -> None:
    X, y = load_digits(return_X_y=True)
    scores = {}
    for method in ("derpp", "sgd"):
        model = ContinualClassifier(method, memory=200, random_state=0)
        for first in range(0, 10, 2):
            rows = (y == first) | (y == first + 1)
            model.partial_fit(X[rows], y[rows])
        scores[method] = model.score(X, y)
    assert scores["derpp"] > 0.7 > 0.4 > scores["sgd"]


def test_announced_classes_make_one_layer() -> None:
    X, y = blobs()
    model = ContinualClassifier(**SMALL).partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2, 3])
    model.partial_fit(X[y > 1], y[y > 1])
    assert model.learner_.grown == [] and model.learner_.outputs == 4
    model.partial_fit(X[:9], y[:9], classes=[9, 7, 0, 1, 2, 3])
    assert model.learner_.grown == [6] and model.classes_.tolist() == [0, 1, 2, 3, 7, 9]
    with pytest.raises(ValueError, match=r"y has the label 5, which is not one of the classes \[6\]"):
        model.partial_fit(X[:2], [5, 6], classes=[6])
    assert model.classes_.tolist() == [0, 1, 2, 3, 7, 9]


def test_old_answers_change_only_by_the_new_classes_share() -> None:
    X, y = blobs()
    model = ContinualClassifier("er", **SMALL).fit(X[y < 3], y[y < 3])
    before = model.predict_proba(X)
    model._meet(np.array([-5]))  # takes the first place among the sorted classes
    after = model.predict_proba(X)
    assert model.classes_.tolist() == [-5, 0, 1, 2]
    np.testing.assert_allclose(after[:, 1:] / after[:, 1:].sum(1, keepdims=True), before, rtol=1e-12)


@pytest.mark.parametrize("model", models(), ids=["sncl", "derpp", "sgd"])
@pytest.mark.parametrize("text", [False, True])
def test_rows_that_come_singly_are_looked_at_once_with_the_same_result(model: Estimator, text: bool) -> None:
    """As lists they go through all that scikit-learn checks."""
    X, y = blobs(40)
    y = y.astype("U1") if text else y
    model, long = copy.deepcopy(model), copy.deepcopy(model)
    for row in range(40):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
        long.partial_fit(X[row : row + 1].tolist(), y[row : row + 1].tolist())
        again = X[row // 2 : row // 2 + 1]
        assert np.array_equal(model.predict_proba(again), long.predict_proba(again.tolist()))
    assert same(model.learner_, long.learner_)
    assert model.classes_.tolist() == long.classes_.tolist()
    assert model.state()[1] == long.state()[1]


WRONG: dict[str, tuple[Any, Any, str]] = {
    "infinite": (np.full((1, 6), np.inf), np.array([0]), "infinity"),
    "narrow": (np.zeros((1, 5)), np.array([0]), "5 features"),
    "flat": (np.zeros(6), np.array([0]), "2D array"),
    "deep": (np.zeros((1, 6, 1)), np.array([0]), "dim 3"),
    "empty": (np.zeros((0, 6)), np.array([], dtype=int), "0 sample"),
    "too few labels": (np.zeros((2, 6)), np.array([0]), "inconsistent numbers of samples"),
    "fractions": (np.zeros((1, 6)), np.array([0.5]), "Unknown label type"),
    "labels in columns": (np.zeros((1, 6)), np.array([[0, 1]]), "1d array"),
    "other labels": (np.zeros((1, 6)), np.array(["a"]), "labels are"),
    "no numbers": (np.zeros((1, 6), dtype=complex), np.array([0]), "Complex data"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_are_wrong_are_refused_after_others_that_were_right(name: str) -> None:
    X, y = blobs(30)
    model = ContinualClassifier("er", **SMALL).partial_fit(X, y)
    X, y, words = WRONG[name]
    before = model.state()
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, y)
    assert all(torch.equal(before[0][key], value) for key, value in model.state()[0].items())
    assert before[1] == model.state()[1]
    if not ("label" in name or name == "fractions"):
        with pytest.raises(ValueError, match=words):
            model.predict(X)


def test_rows_without_names_are_doubted_where_there_were_names() -> None:
    frame = load_wine(as_frame=True)
    model = ContinualClassifier("er", **SMALL).fit(frame.data, frame.target)
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(frame.data.to_numpy())


@pytest.mark.parametrize("method", USABLE)
def test_every_usable_method_works_as_an_estimator(method: str) -> None:
    X, y = blobs(60)
    settings = {"anchor_steps": 2} if method == "hal" else None
    model = ContinualClassifier(method, settings=settings, **SMALL | {"epochs": 1}).fit(X[y < 3], y[y < 3])
    assert model.predict(X).shape == (60,)
    model.partial_fit(X, y).partial_fit(X, y)
    if model.learner_.method.needs_boundaries:
        assert model.learner_.tasks == 1  # fit is a task
        model.boundary(X, y)
        assert model.learner_.tasks == 2
    assert (model.predict(X[y == 3]) == 3).any()


def test_raw_features_of_any_scale_learn_as_standardised_ones() -> None:
    X, y = load_wine(return_X_y=True)
    wild = X * np.logspace(-9, 9, 13) + np.logspace(0, 12, 13)
    for model in (ContinualClassifier(random_state=0),):
        raw, plain = (
            cross_val_score(model, wild, y, cv=3),
            cross_val_score(model, StandardScaler().fit_transform(X), y, cv=3),
        )
        assert raw.mean() > 0.93 and plain.mean() > 0.93


def test_remembered_rows_are_raw() -> None:
    X, y = blobs()
    model = ContinualClassifier("er", **SMALL | {"memory": 500, "epochs": 1}).fit(1e6 * X + 1e9, y)
    memory = model.learner_.memory
    assert memory is not None and memory.fields["x"].dtype == torch.float64
    stored = memory.content()["x"].numpy()
    np.testing.assert_array_equal(stored[stored[:, 0].argsort()], (1e6 * X + 1e9)[X[:, 0].argsort()])


def test_parameters_reach_the_learner() -> None:
    X, y = blobs()
    given = SMALL | {"hidden": (7, 5), "lr": 0.01, "ema": 0.9}
    model = SNCLClassifier(alpha=0.0, sparsity=0.25, fill=2.0, settings={"features": "1"}, **given)
    model.fit(X, y)
    method: Any = model.learner_.method
    assert (method.alpha, method.features) == (0.0, ("1",))
    gating = method.gating
    assert (type(gating), gating.sparsity, gating.start, gating.fill) == (Grow, 0.25, 1.0, 2.0)
    assert (model.learner_.lr, model.learner_.replay, model.learner_.ema) == (0.01, 8, 0.9)
    widths = [layer.out_features for layer in model.learner_.body.modules() if isinstance(layer, nn.Linear)]
    assert widths == [7, 5, 4]


def test_gates_are_chosen_with_parameters_of_their_own() -> None:
    X, y = blobs()
    off, paper = (SNCLClassifier(gates=gates, **SMALL).fit(X, y).learner_.method for gates in ("off", "kl"))
    assert isinstance(off, SNCL) and off.gating is None
    assert isinstance(paper, SNCL) and isinstance(paper.gating, KL)
    assert (paper.gating.eta, paper.gating.anneal) == (1e-4, 0.2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eta": 0.01}, "eta belongs to gates=kl, and here it is gates=grow; give `gates` too"),
        ({"gates": "kl", "sparsity": 0.4}, "sparsity belongs to gates=grow, and here it is gates=kl"),
        ({"gates": "off", "start": 0.4}, "start belongs to gates=grow, and here it is gates=off"),
        ({"gates": "target"}, "`gates=target` is gone; `gates=grow` is there instead, with `sparsity`"),
        ({"gates": "ajar"}, "`gates` is one of off, grow, kl, not 'ajar'"),
        ({"sparsity": 1.0}, "`sparsity` is the part of the neurons closed in the end, 0 or more, below 1, not 1.0"),
    ],
)
def test_parameters_of_other_gates_are_refused_as_on_the_command_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SnclError) as error:
        SNCLClassifier(**SMALL | given).fit(*blobs())
    assert message in str(error.value)


def test_a_fraction_of_the_neurons_stays_closed() -> None:
    model = SNCLClassifier(sparsity=0.3, fill=0.1, **SMALL | {"hidden": (20, 20)}).fit(*blobs())
    opened = open_neurons(model.learner_.body)
    assert sum(int(layer.sum()) for layer in opened.values()) == 28


def test_the_random_state_decides_everything() -> None:
    X, y = blobs()
    answers = [ContinualClassifier(**SMALL | {"random_state": seed}).fit(X, y).predict_proba(X) for seed in (1, 1, 2)]
    assert (answers[0] == answers[1]).all() and (answers[0] != answers[2]).any()


# --- inputs ------------------------------------------------------------------------------------------------------


def test_data_frames_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = blobs()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = ContinualClassifier(**SMALL).partial_fit(frame, pandas.Series(y).map({0: "a", 1: "b", 2: "c", 3: "d"}))
    assert model.feature_names_in_.tolist() == list("abcdef") and model.classes_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame[list("fedcba")], ["a"] * 120)


def test_tensors_are_arrays() -> None:
    X, y = blobs()
    first = ContinualClassifier(**SMALL).fit(X, y)
    second = ContinualClassifier(**SMALL).fit(torch.from_numpy(X).requires_grad_(), torch.from_numpy(y))
    assert same(first.learner_, second.learner_)


class Images(nn.Module):
    """Takes [rows, height, width] or [rows, channels, height, width]."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.flat = len(shape) == 2
        self.layers = nn.Sequential(
            nn.Conv2d(1 if self.flat else shape[0], 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x[:, None] if self.flat else x)
        return logits


def images(shape: tuple[int, ...], classes: int) -> nn.Module:
    net = Images(shape, classes)
    net.eval()(torch.zeros(1, *shape))
    return net.train()


def test_images_for_a_network_that_takes_them() -> None:
    digits = load_digits()
    y = digits.target[:200]
    for X in (digits.images[:200], digits.images[:200, None], digits.images[:200, None].astype(np.uint8)):
        model = SNCLClassifier(network=images, random_state=0, epochs=8, batch_size=33).fit(X, y)  # leaves 2 rows over
        assert model.score(X, y) > 0.8
        with pytest.raises(SnclError, match=r"inputs have the shape .* as in the first batch"):
            model.predict(X[..., :5])
    with pytest.raises(ValueError, match="Found array with dim 3"):
        SNCLClassifier().fit(digits.images, digits.target)


def test_a_single_row_is_never_left_alone() -> None:
    X, y = blobs(33)

    def net(features: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))

    model = ContinualClassifier("er", network=net, **SMALL).fit(X, y)
    assert model.learner_.steps == 3 * 4


def test_a_module_is_copied_and_may_have_outputs_to_spare() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10))
    before = copy.deepcopy(net.state_dict())
    X, y = blobs()
    model = ContinualClassifier("er", network=net, **SMALL).fit(X[y < 3], y[y < 3])
    model.partial_fit(X, y)
    assert model.learner_.outputs == 10 and model.learner_.grown == [] and model.predict_proba(X).shape == (120, 4)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    few = ContinualClassifier("er", network=nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), **SMALL).fit(
        X, y
    )
    assert few.learner_.grown == [4]


# --- what newcomers get wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"X": lambda X: np.where(X > 0, X, np.inf)}, "Input X contains infinity"),
        ({"X": lambda X: X[:, 0]}, r"Expected 2D array, got 1D array instead"),
        ({"X": lambda X: X[:0], "y": lambda y: y[:0]}, r"Found array with 0 sample\(s\)"),
        ({"y": lambda y: None}, "requires y to be passed, but the target y is None"),
        ({"y": lambda y: y[:5]}, "inconsistent numbers of samples"),
        ({"y": lambda y: y + 0.5}, "Unknown label type: continuous"),
        ({"method": "magic"}, "there is no method 'magic'; the known ones are sgd"),
        ({"method": "pnn"}, "pnn predicts only when told the task, so it is no method for an estimator; those are sgd"),
        ({"method": "joint"}, "joint is a way to show a stream"),
        ({"settings": {"beta": 1}}, "derpp has no setting 'beta'; it takes logits, labels"),
        ({"epochs": 0}, "`epochs` is at least 1, not 0"),
        ({"batch_size": -1}, "`batch_size` is at least 1, not -1"),
        ({"memory": 0}, "at least 1 .*, not 0"),
        ({"lr": -1.0}, "positive number, not -1"),
        ({"lr": 1e9}, "the loss .* became (nan|infinite) by step .*; use a smaller `lr`"),
        ({"network": nn.Flatten()}, "the network Flatten has no parameters"),
        ({"network": lambda features, classes: None}, r"`network` is an nn\.Module or makes one .*, not NoneType"),
        ({"network": nn.Linear(5, 4)}, r"the network Linear cannot take inputs of the shape \[6\]"),
        ({"device": "toaster"}, "device.*toaster"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_mistakes_are_answered_with_a_sentence(change: dict[str, Any], sentence: str, call: str) -> None:
    X, y = blobs()
    options = {name: value for name, value in change.items() if name not in ("X", "y")}
    model = ContinualClassifier(**SMALL | options)
    with pytest.raises((SnclError, ValueError), match=sentence):
        getattr(model, call)(change.get("X", lambda X: X)(X), change.get("y", lambda y: y)(y))


def test_mistakes_in_a_later_call_leave_the_estimator_as_it_was() -> None:
    X, y = blobs()
    model = ContinualClassifier(**SMALL).fit(X, y)
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="X has 5 features, but ContinualClassifier is expecting 6 features"):
        model.partial_fit(X[:, :5], y)
    with pytest.raises(ValueError, match="contains infinity"):
        model.partial_fit(np.full_like(X, np.inf), y)
    for labels, classes in ((["a"] * 120, None), (y, ["a"])):
        with pytest.raises(BadInput, match=r"labels are <U1 such as 'a' now, but were \[0, 1, 2, 3\] so far"):
            model.partial_fit(X, labels, classes=classes)
    assert same(model.learner_, before.learner_) and (model.classes_ == before.classes_).all()


def test_a_network_that_cannot_grow_says_what_to_do() -> None:
    X, y = blobs()

    def net(features: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, classes), nn.LogSoftmax(1))

    model = ContinualClassifier("er", network=net, **SMALL).partial_fit(X[y < 2], y[y < 2])
    with pytest.raises(
        BadInput, match=r"4 classes now, and the network has 2 outputs .* name all `classes` at the first"
    ):
        model.partial_fit(X, y)
    model = ContinualClassifier("er", network=net, **SMALL).partial_fit(X[y < 2], y[y < 2], classes=range(4))
    assert model.partial_fit(X, y).score(X, y) > 0.8


def test_predicting_before_learning() -> None:
    for call in ("predict", "predict_proba", "predict_log_proba", "boundary"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(SNCLClassifier(), call)([[1.0]])
    with pytest.raises(NotFittedError):
        SNCLClassifier().save("nowhere")


def test_a_memory_larger_than_the_data_is_fine_and_told_to_who_listens(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = blobs(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ContinualClassifier(**SMALL | {"memory": 5000, "epochs": 2}, verbose=1).fit(X, y)
    assert len(model.learner_.memory or ()) == 80
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:2]] == [f"[ContinualClassifier] epoch {n} of 2" for n in (1, 2)]
    assert lines[2:] == ["[ContinualClassifier] 80 of at most 5000 samples in memory"]
    ContinualClassifier(**SMALL).fit(X, y)
    assert capsys.readouterr().out == ""


def test_an_estimator_that_diverged_says_so_until_it_is_fitted_again(tmp_path: Path) -> None:
    X, y = blobs()
    model = ContinualClassifier(**SMALL).fit(X, y)
    model.save(tmp_path / "model")
    good = (tmp_path / "model").read_bytes()
    with pytest.raises(Diverged):
        model.set_params(lr=1e6).fit(X, y)
    for again in (model, pickle.loads(pickle.dumps(model))):
        for use in (again.predict, again.predict_proba, lambda _, again=again: again.save(tmp_path / "model")):
            with pytest.raises(Diverged, match="fit this estimator again, or load one that was saved before"):
                use(X)
        with pytest.raises(Diverged):
            again.partial_fit(X, y)
    assert (tmp_path / "model").read_bytes() == good
    expected = ContinualClassifier.load(tmp_path / "model").predict(X)
    assert (model.set_params(lr=0.1).fit(X, y).predict(X) == expected).all()


def test_a_loss_that_is_no_number_is_said() -> None:
    X, y = blobs()
    with pytest.raises(Diverged, match="use a smaller `lr`"):
        ContinualClassifier(**SMALL | {"lr": 1e6}).fit(X, y)


def test_an_update_that_broke_the_weights_is_said_at_once() -> None:
    """Its loss was still a number."""
    X, y = blobs()
    model = ContinualClassifier(**SMALL | {"lr": 1e38, "standardize": False})
    with pytest.raises(Diverged, match=r"the weights .* became (nan|infinite) by step 1"):
        model.partial_fit(1000 * X[:1], y[:1], classes=np.unique(y))
    with pytest.raises(Diverged, match="fit this estimator again"):
        model.predict(X)


def test_so_are_running_statistics_that_are_no_numbers_any_more() -> None:
    """Whatever they are divided by is 0, so the loss stays a number."""
    X, y = blobs()
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    model = ContinualClassifier("er", network=net, **SMALL).partial_fit(X, y)
    model.learner_.net.body[1].running_var.fill_(torch.inf)  # type: ignore[index, union-attr, operator]
    with pytest.raises(Diverged, match=r"the weights '1\.running_var' became infinite"):
        model.partial_fit(X, y)


@pytest.mark.parametrize("late", [False, True])
def test_so_are_buffers_that_nobody_reads_where_steps_are_replayed(late: bool) -> None:
    """What is looked at behind a replay is found once, and anew when a module got another buffer."""
    X, y = blobs()
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    net[0].register_buffer("unread", torch.zeros(3))
    model = ContinualClassifier("er", network=net, **SMALL)
    for row in range(20):
        model = model.partial_fit(X[row : row + 1], y[row : row + 1], classes=np.unique(y) if row == 0 else None)
    engine, layer = model.learner_.ready.engine, model.learner_.net.body[0]  # type: ignore[index]
    assert engine.finite_check() is engine.finite_check()  # of a replay
    if late:
        layer.register_buffer("new", torch.full((2,), torch.nan))  # type: ignore[operator, union-attr]
    else:
        layer.unread[1] = torch.nan  # type: ignore[index, union-attr]
    with pytest.raises(Diverged, match=rf"the weights '0\.{'new' if late else 'unread'}' became nan by step 21"):
        model.partial_fit(X[20:21], y[20:21])


# --- beside other tools of scikit-learn --------------------------------------------------------------------------


def test_pipelines_and_grid_search() -> None:
    X, y = blobs()
    model = make_pipeline(FunctionTransformer(), SNCLClassifier(**SMALL))
    assert model.fit(X, y).score(X, y) > 0.9
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), ContinualClassifier(**SMALL)),
        {"continualclassifier__lr": [1e-6, 0.1], "continualclassifier__hidden": [(8,), (16, 8)]},
        cv=2,
    ).fit(X, y)
    assert grid.best_params_["continualclassifier__lr"] == 0.1 and grid.best_score_ > 0.85


def test_examples_in_docstrings_run() -> None:
    failed, attempted = doctest.testmod(sncl.estimator.classifier)
    assert attempted > 10 and not failed

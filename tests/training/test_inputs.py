"""What newcomers give a learner: what can be meant is taken, all else is answered with one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.streams.transforms import Unit
from sncl.training.inputs import as_inputs, has_gaps
from sncl.training.learner import Learner

X, Y = torch.linspace(0.05, 1.0, 24).reshape(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def learner(net: nn.Module | None = None, **options: Any) -> Learner:
    torch.manual_seed(0)
    net = net or nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return Learner(net, "er", memory=10, device="cpu", **options)


def trained(**options: Any) -> Learner:
    subject = learner(**options)
    subject.learn(X, Y)
    return subject


def read_only(values: Tensor) -> np.ndarray:
    array = values.numpy().copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X.numpy(), Y.numpy()),
        (X.tolist(), Y.tolist()),
        (read_only(X), read_only(Y)),
        (X.numpy()[::-1][::-1], Y.numpy().astype(np.uint16)),
        (np.asfortranarray(X.numpy()), Y.numpy().astype(np.int8)),
        (X.double(), Y.int()),
        (X.double().numpy(), Y.tolist()),
    ],
    ids=["arrays", "lists", "read-only", "views", "Fortran", "float64", "float64 array"],
)
def test_arrays_lists_and_other_precisions_are_the_same_rows(x: Any, y: Any) -> None:
    ours, theirs = learner(), learner()
    for _ in range(3):
        ours.learn(x, y)
        theirs.learn(X, Y)
    assert all(torch.equal(value, theirs.state()[name]) for name, value in ours.state().items())
    assert torch.equal(ours.predict(x), theirs.predict(X))


def test_a_double_network_gets_doubles() -> None:
    subject = learner(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double())
    subject.learn(X, Y)
    assert subject.memory is not None and subject.memory.fields["x"].dtype == torch.float64


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (X, ["cat", "dog"] * 3, r"y holds numbers, not <U3 such as 'cat'; number the classes .*ContinualClassifier"),
        (X, np.array(["cat"] * 6, dtype=object), r"y holds numbers, not object such as 'cat'"),
        (X, None, r"y is missing: there is one input in x and one label in y"),
        (None, Y, r"x is missing"),
        (X, Y.float(), r"labels are integers 0, 1, 2, \.\.\.; got torch\.float32"),
        (X, Y[:, None], r"the same number of rows, and y one label a row: got \[6, 4\], \[6, 1\]"),
        (X[:5], Y, r"the same number of rows"),
        (
            X[:, 0],
            Y,
            r"x is one row for each label, \[rows, \.\.\.\], but has the shape \[6\]; a single row is x\[None\]",
        ),
        (torch.tensor(1.0), Y, r"has the shape \[\]"),
        (X[:0], Y[:0], r"x needs at least 1 row, and has the shape \[0, 4\]"),
        ([[1.0, 2.0], [3.0]], [0, 1], r"x cannot be made an array"),
        (X.to(torch.complex64), Y, r"x holds real numbers, not complex64"),
        (torch.rand(6, 5), Y, r"Sequential cannot take inputs of the shape \[5\] and the type float32 a row: mat1"),
        (torch.ones(6, 4).int(), Y, r"cannot take inputs of the shape \[4\] and the type int32 a row"),
        (X, 10 * Y, r"label 20 does not fit a network with 3 outputs: number the classes 0, 1, 2, \.\.\."),
        (X.where(X > 0.1, torch.nan), Y, r"x contains NaN; fill the gaps or leave these rows out"),
        (X / 0, Y, r"x contains infinity"),
        (torch.cat([X[:5] / 0, -X[:1] / 0]), Y, r"x contains infinity"),
    ],
)
def test_what_cannot_be_meant_is_answered_with_a_sentence(x: Any, y: Any, sentence: str) -> None:
    subject = learner()
    with pytest.raises(SnclError, match=sentence) as raised:
        subject.learn(x, y)
    assert "\n" not in str(raised.value)
    subject.learn(X, Y)  # as if nothing had happened


def test_huge_numbers_are_numbers() -> None:
    """Their sum overflows, and is no reason to refuse them."""
    subject, small = learner(transform=Shrink()), learner()
    huge = torch.full((6, 4), 3e38)
    assert torch.isinf(huge.sum())
    losses, expected = subject.learn(huge, Y), small.learn(huge / 1e38, Y)
    assert torch.equal(losses["labels"], expected["labels"])
    assert torch.equal(subject.predict(huge), small.predict(huge / 1e38))


class Shrink(Unit):
    def eval(self, x: Tensor) -> Tensor:
        return x / 1e38


def test_later_batches_are_like_the_first() -> None:
    subject = trained()
    for call in (lambda x: subject.learn(x, Y), subject.predict):
        with pytest.raises(SnclError, match=r"the shape \[rows, 4\] and the type float32, as in the first .*\[6, 5\]"):
            call(torch.rand(6, 5))
        with pytest.raises(SnclError, match=r"as in the first batch; got \[6, 4\] and int64"):
            call(torch.ones(6, 4).long())
        with pytest.raises(SnclError, match="contains NaN"):
            call(X * torch.nan)
    bytes_first = learner(transform=Unit())
    bytes_first.learn((255 * X).byte(), Y)
    with pytest.raises(SnclError, match=r"the type uint8, as in the first batch; got \[6, 4\] and float32"):
        bytes_first.learn(X, Y)


def test_predicting_before_learning() -> None:
    with pytest.raises(SnclError, match=r"has not learned anything yet; call learn\(x, y\) or load\(path\) first"):
        learner().predict(X)


def test_a_network_that_cannot_learn_or_answer() -> None:
    with pytest.raises(SnclError, match="the network Flatten has no parameters, so there is nothing to train"):
        learner(nn.Flatten())
    with pytest.raises(SnclError, match=r"returns logits \[rows, classes\], one row for each input; it returned"):
        learner(nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1)))).learn(X, Y)


def test_a_memory_larger_than_the_stream_keeps_all_of_it() -> None:
    torch.manual_seed(0)
    subject = Learner(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "er", memory=1000, device="cpu")
    subject.learn(X, Y)
    subject.learn(X, Y)
    assert subject.memory is not None and len(subject.memory) == 12


AS_THEY_ARE: dict[str, Tensor] = {
    "one row": X[:1],
    "rows": X,
    "every other row": X[::2],
    "turned": X[:4].t(),
    "sparse": X.to_sparse(),
}
NOT_SO: dict[str, Any] = {
    "an array": X.numpy(),
    "a list": X.tolist(),
    "another precision": X.double(),
    "integers": X.long(),
    "another width": X[:, :3],
    "more axes": X[:, :, None],
    "one number": X[0, 0],
    "no rows": X[:0],
    "a gap": X / 0,
    "a parameter": nn.Parameter(X),
    "differentiated": X.clone().requires_grad_(),
    "by name": {"x": X},
}


@pytest.mark.parametrize("name", [*AS_THEY_ARE, *NOT_SO])
def test_what_fits_at_a_short_look_is_what_is_taken_as_it_is(name: str) -> None:
    given = (AS_THEY_ARE | NOT_SO)[name]
    subject = trained()
    assert subject.signature.fits(given) == (name in AS_THEY_ARE)
    if name in AS_THEY_ARE:
        assert subject.signature.checked(as_inputs(given)) is given


def test_what_was_made_in_inference_mode_is_copied() -> None:
    with torch.inference_mode():
        x, y = X.clone(), Y.clone()
    subject, other = trained(), trained()
    assert not subject.signature.fits(x)
    for rows in (slice(0, 1), slice(0, 6)):
        assert torch.equal(subject.learn(x[rows], y[rows])["labels"], other.learn(X[rows], Y[rows])["labels"])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("columns", [4, 500])
def test_gaps_are_seen_in_short_rows_and_long_ones(columns: int, value: float) -> None:
    x = torch.full((1, columns), 3e38)  # whose sum overflows
    assert not has_gaps(x)
    x[0, 2] = value
    assert has_gaps(x)
    x[0, 3] = -value  # which may make up for it
    assert has_gaps(x)
    assert not has_gaps(torch.ones(1, columns, dtype=torch.int64))

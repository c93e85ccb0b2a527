"""What a recording holds, what is left out of it, and what cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from sncl.training import recording
from sncl.training.recording import Recording, record
from sncl.training.replaying import CallList
from sncl.training.simplifying import simplified
from sncl.training.unchanged import Unchanged

aten = torch.ops.aten
STATE = torch.arange(6.0).reshape(2, 3)


def recorded(run: Callable[[Tensor], Tensor], x: Tensor) -> Recording:
    found = record(lambda: [run(x)], [x])
    assert found is not None
    return found


def operations(found: Recording) -> list[object]:
    return [call.operation for call in found.calls]


def check(run: Callable[[Tensor], Tensor], *left: object) -> Recording:
    """A replay on other inputs is what is written, and ``left`` are the operations it consists of."""
    first, second = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[0.5, 4.0, -1.0]])
    found = simplified(recorded(run, first))
    if left:
        assert operations(found) == list(left)
    (ours,) = CallList(found)([second])
    assert torch.equal(ours, run(second))
    return found


def test_a_replay_computes_what_is_written_on_other_inputs() -> None:
    check(lambda x: (x @ STATE.t()).relu() + 1)
    check(lambda x: torch.cat([x, 2 * x]).sum(0))
    check(lambda x: torch.stack(x.unbind(1)).cumsum(0))
    check(lambda x: x.clone().mul_(3).add_(x))


def test_the_backward_pass_is_part_of_it() -> None:
    weight = torch.ones(3, requires_grad=True)

    def gradient(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad((weight * x).square().mean(), weight)
        return found

    check(gradient)


def test_what_is_there_before_is_read_anew_each_time() -> None:
    state = torch.ones(1, 3)
    found = CallList(recorded(lambda x: x + state[:, 1:2], torch.zeros(1, 3)))
    state.add_(4)
    assert torch.equal(found([torch.ones(1, 3)])[0], torch.full((1, 3), 6.0))


def test_it_may_change_what_is_there() -> None:
    total = torch.zeros(1, 3)
    found = CallList(simplified(recorded(lambda x: total.add_(x).clone(), torch.ones(1, 3))))
    found([torch.ones(1, 3)])
    assert torch.equal(total, torch.full((1, 3), 2.0))


def test_what_nobody_reads_is_left_out() -> None:
    def run(x: Tensor) -> Tensor:
        x.exp().log()
        return x.neg()

    check(run, aten.neg.default)


def test_transpositions_that_undo_each_other_are_left_out() -> None:
    check(lambda x: x.neg().t().t() + 1, aten.neg.default, aten.add_.Tensor)


def test_views_of_all_there_is_are_left_out() -> None:
    check(lambda x: x.neg().view(1, 3).expand(1, 3)[:, :] + 1, aten.neg.default, aten.add_.Tensor)
    check(
        lambda x: x.neg().view(3).view(3, 1) + 1,
        aten.neg.default,
        aten.view.default,
        aten.view.default,
        aten.add_.Tensor,
    )
    written = check(lambda x: x.clone().view(1, 3).mul_(2))
    assert aten.view.default not in operations(written)


def test_a_sum_that_is_seen_without_its_axes_is_made_without_them() -> None:
    for seen in (lambda total: total.view(3), lambda total: total.squeeze(0)):
        found = check(lambda x, seen=seen: seen(x.neg().sum(0, keepdim=True)) * 2)  # type: ignore[misc]
        assert operations(found) == [aten.neg.default, aten.sum.dim_IntList, aten.mul_.Tensor]
        assert found.calls[1].arguments[2:] == ()


def test_a_sum_that_is_read_with_its_axes_or_seen_otherwise_keeps_them() -> None:
    def twice(x: Tensor) -> Tensor:
        total = x.neg().sum(0, keepdim=True)
        return total.view(3) + total[0]

    for run in (twice, lambda x: x.neg().sum(0, keepdim=True).view(3, 1).exp()):
        assert check(run).calls[1].arguments[2:] == (True,)


def test_rows_are_seen_by_index() -> None:
    check(lambda x: torch.cat([x, 2 * x])[1:2] + 1)
    check(lambda x: torch.cat([x, 2 * x])[-1:] + 1)
    check(lambda x: torch.cat([x, 2 * x])[::2] + 1)
    check(lambda x: torch.cat([x, 2 * x])[0:2].mul_(3).sum(0))


def gradient(run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The gradient of a loss with respect to three rows made of an input."""

    def differentiated(x: Tensor) -> Tensor:
        rows = torch.cat([x, x * 2, -x]).requires_grad_()
        (found,) = torch.autograd.grad(run(rows), rows)
        return found

    return differentiated


def test_gradients_of_rows_that_are_seen_apart_are_put_end_to_end() -> None:
    for places in ((0, 1, 3), (0, 2, 3)):
        parts = [slice(*pair) for pair in pairwise(places)]
        for order in (parts, parts[::-1]):
            found = check(gradient(lambda rows, order=order: sum(rows[each].square().sum() for each in order)))  # type: ignore[misc]
            assert aten.slice_backward.default not in operations(found)
    both = check(gradient(lambda rows: rows[:1].exp().sum() + rows[1:2].sin().sum() + rows[2:].square().mean()))
    assert operations(both).count(aten.cat.default) == 2  # the rows, and their gradients


def test_a_zero_has_the_sign_that_a_sum_gives_it() -> None:
    x = torch.tensor([[0.0, -0.0, 1.0]])
    run = gradient(lambda rows: (rows[:1] * -0.0).sum() + (rows[1:] * 0.0).sum())
    (ours,) = CallList(simplified(recorded(run, torch.ones(1, 3))))([x])
    assert torch.equal(ours.signbit(), run(x).signbit())


@pytest.mark.parametrize(
    "run",
    [
        lambda rows: rows[:1].exp().sum() + rows[2:].square().sum(),  # a gap
        lambda rows: rows[:2].exp().sum() + rows[1:].square().sum(),  # a row twice
        lambda rows: rows[:1].exp().sum() + rows[1:].square().sum() + rows.sin().sum(),  # and all of them once more
        lambda rows: rows[:, :1].exp().sum() + rows[:, 1:].square().sum(),  # columns
        lambda rows: rows[::2].exp().sum() + rows[1::2].square().sum(),
    ],
)
def test_other_sums_of_gradients_are_made_as_they_are_written(run: Callable[[Tensor], Tensor]) -> None:
    check(gradient(run))


def test_what_depends_on_shapes_alone_is_computed_once() -> None:
    check(lambda x: x + torch.ones_like(x) / 3, aten.add.Tensor)


def test_not_so_if_somebody_writes_into_it_or_gets_it() -> None:
    found = check(lambda x: torch.zeros_like(x).add_(x).mul_(2))
    assert aten.zeros_like.default in operations(found)
    found = check(lambda x: torch.ones_like(x).view(3))
    assert aten.ones_like.default in operations(found)
    one, other = (CallList(found)([torch.zeros(1, 3)])[0] for _ in range(2))
    assert one.data_ptr() != other.data_ptr()


def copied(x: Tensor, strides: tuple[int, int], then: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    source = x.neg()
    return then(source.new_empty_strided(source.shape, strides).copy_(source), source)


def test_a_copy_of_what_nobody_reads_afterwards_is_left_out() -> None:
    check(lambda x: copied(x, (3, 1), lambda copy, source: copy + 1), aten.neg.default, aten.add_.Tensor)


def test_other_copies_stay() -> None:
    read_again = check(lambda x: copied(x, (3, 1), lambda copy, source: copy.add_(1) + source))
    otherwise = check(lambda x: copied(x.expand(2, 3), (1, 2), lambda copy, source: copy + 1))
    for found in (read_again, otherwise):
        assert aten.copy_.default in operations(found)


def test_what_is_read_for_the_last_time_is_written_over() -> None:
    check(lambda x: (x.neg() + 1).relu(), aten.neg.default, aten.add_.Tensor, aten.relu_.default)
    check(lambda x: x.neg()[0, 1:] * 2, aten.neg.default, aten.select.int, aten.slice.Tensor, aten.mul_.Tensor)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x + 1,  # an input
        lambda x: x.view(3) + 1,
        lambda x: STATE * 2 + x.sum(),  # what is there before
        lambda x: STATE[0] * 2 + x.sum(),
        lambda x: (found := x.neg()) * 2 - found.exp(),  # read again, also by another name
        lambda x: (found := x.neg()) * 2 - found.view(3).exp(),
        lambda x: (found := x.neg()).view(3) * 2 - found.exp(),
        lambda x: x.neg() * STATE,  # of another form
        lambda x: x.neg() * STATE.double()[0],
        lambda x: x.neg().expand(2, 3) + STATE,
        lambda x: (found := x.neg().expand(3, 3).contiguous()) + found.t(),  # read in another order
    ],
)
def test_what_others_read_is_not_written_over(run: Callable[[Tensor], Tensor]) -> None:
    before, x = STATE.clone(), torch.tensor([[1.0, -2.0, 3.0]])
    kept, found = x.clone(), check(run)
    first = next(call.operation for call in found.calls if str(call.operation).startswith(("aten.add", "aten.mul")))
    assert first in (aten.add.Tensor, aten.mul.Tensor)
    for _ in range(2):
        assert torch.equal(CallList(found)([x])[0], run(x)) and torch.equal(x, kept) and torch.equal(STATE, before)


def test_what_is_returned_is_not_written_over() -> None:
    def run(x: Tensor) -> list[Tensor]:
        found = x.neg()
        return [found.view(3), found + 1]

    x = torch.tensor([[1.0, -2.0, 3.0]])
    recording = record(lambda: run(x), [x])
    assert recording is not None
    for ours, theirs in zip(CallList(simplified(recording))([2 * x]), run(2 * x), strict=True):
        assert torch.equal(ours, theirs)


def test_random_numbers_are_drawn_in_every_replay() -> None:
    found = simplified(recorded(lambda x: x + torch.rand(1, 3), torch.zeros(1, 3)))
    assert found.draws
    torch.manual_seed(0)
    ours = CallList(found)([torch.zeros(1, 3)])[0]
    torch.manual_seed(0)
    assert torch.equal(ours, torch.rand(1, 3))


REFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "asks for a number": lambda x: x * x.sum().item(),
    "asks for a truth value": lambda x: x if x.sum() > 0 else -x,
    "asks how many there are": lambda x: x[x > 0],
    "asks for places": lambda x: x.nonzero(),
    "changes an input": lambda x: x.add_(1),
    "changes a view of an input": lambda x: x[:, 1:].add_(1),
    "changes a shape": lambda x: x.clone().t_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed_is_not_recorded(name: str) -> None:
    x = torch.ones(1, 3)
    assert record(lambda: [REFUSED[name](x)], [x]) is None


def test_an_input_that_comes_twice_may_be_two_next_time() -> None:
    x = torch.ones(1, 3)
    assert record(lambda: [x + x], [x, x]) is None


def test_what_computes_much_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1, 3)
    monkeypatch.setattr(recording, "MOST_BYTES", 12)
    assert record(lambda: [x + 1], [x]) is not None
    assert record(lambda: [x + 1 + 1], [x]) is None


def test_two_recordings_differ_where_anything_does() -> None:
    x, numbers = torch.ones(1, 3), iter((2.0, 2.0, 3.0))
    first, second, third = (recorded(lambda x: x * next(numbers), x) for _ in range(3))
    assert first.same_as(second)
    assert not first.same_as(third)
    fresh = (recorded(lambda x: x + torch.tensor([1.0]), x) for _ in range(2))
    assert not next(fresh).same_as(next(fresh))  # a constant of its own each time
    kept = (recorded(lambda x: x + STATE[1], x) for _ in range(2))
    assert next(kept).same_as(next(kept))


class Part:
    """An object with attributes."""

    def __init__(self) -> None:
        self.number, self.tensor, self.numbers, self.tensors = 0.5, torch.ones(2), [1, [2.0]], {"a": torch.ones(1)}


def changes() -> dict[str, Callable[[Part], object]]:
    return {
        "attribute": lambda part: setattr(part, "number", 0.25),
        "new attribute": lambda part: setattr(part, "other", 1),
        "equal tensor": lambda part: setattr(part, "tensor", torch.ones(2)),
        "list": lambda part: part.numbers.append(3),
        "nested list": lambda part: part.numbers[1].append(3),  # type: ignore[attr-defined]
        "dictionary": lambda part: part.tensors.update(a=torch.ones(1)),
        "place of a tensor": lambda part: setattr(part.tensor, "data", torch.zeros(2)),
        "gradient": lambda part: part.tensor.requires_grad_(),
    }


@pytest.mark.parametrize("name", changes())
def test_what_is_replaced_is_noticed(name: str) -> None:
    part = Part()
    unchanged = Unchanged([part], [part.tensor])
    part.tensor.add_(1)
    assert unchanged.holds()
    changes()[name](part)
    assert not unchanged.holds()

"""What the tasks of each kind of benchmark show, and that nothing is lost, repeated or leaked."""

from pathlib import Path

import pytest
import torch
from digit_streams import DIGITS, bag, epoch, made, numbered

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.arrange import angles
from sncl.streams.benchmarks import STREAMS
from sncl.streams.build import build
from sncl.streams.holdout import hold_out
from sncl.streams.transforms import remap, rotation_map


def test_sequential_tasks_are_the_classes_in_order() -> None:
    stream = made("seq-digits")
    assert (stream.tasks, stream.test_tasks, stream.classes, stream.shape) == (5, 5, 10, (1, 8, 8))
    assert stream.scenario == "class-il"
    assert stream.boundaries
    for task in range(5):
        x, y = epoch(stream, task)
        of_task = DIGITS.train_y // 2 == task
        assert bag(x, y) == bag(DIGITS.train_x[of_task], DIGITS.train_y[of_task])
        test_x, test_y = stream.test(task)
        assert torch.equal(test_x, DIGITS.test_x[DIGITS.test_y // 2 == task])
        assert set(test_y.tolist()) == {2 * task, 2 * task + 1}
        assert stream.groups[task].nonzero().flatten().tolist() == [2 * task, 2 * task + 1]


@pytest.mark.parametrize("name", ["perm-digits", "rot-digits"])
def test_each_task_shows_all_images_through_its_own_map(name: str) -> None:
    stream = made(name, seed=1, tasks=3)
    assert stream.scenario == "domain-il"
    assert stream.groups.all()
    assert stream.maps is not None
    assert len(stream.maps.unique(dim=0)) == 3  # the first task has a map of its own too
    assert not (stream.maps[0] == torch.arange(64)).all()
    for task in range(3):
        positions = stream.positions(task, 0)[5]
        x, y = stream.batch(task, positions)
        assert torch.equal(x, remap(DIGITS.train_x[positions], stream.maps[task]))
        assert torch.equal(y, DIGITS.train_y[positions])
        assert torch.equal(stream.test(task)[0], remap(DIGITS.test_x, stream.maps[task]))
        assert stream.test(task)[0] is stream.test(task)[0]  # made once


def test_permutations_are_permutations_and_angles_lie_in_half_a_turn() -> None:
    maps = made("perm-digits", tasks=4).maps
    assert maps is not None
    assert maps.sort(dim=1).values.tolist() == [list(range(64))] * 4
    drawn = angles(seed=0, tasks=200)
    assert 0 <= drawn.min() < 10
    assert 170 < drawn.max() < 180
    maps = made("rot-digits", tasks=4).maps
    assert maps is not None
    assert torch.equal(maps, rotation_map(drawn[:4], 8, 8))


@pytest.mark.parametrize("name", ["seq-digits", "perm-digits", "rot-digits"])
def test_a_shorter_stream_is_the_beginning_of_a_longer_one(name: str) -> None:
    short, long = made(name, seed=2, tasks=3), made(name, seed=2, tasks=5)
    assert (short.tasks, short.test_tasks, short.classes) == (3, 3, long.classes)
    assert torch.equal(short.groups, long.groups[:3])
    for task in range(3):
        for one, two in zip(epoch(short, task, 1), epoch(long, task, 1), strict=True):
            assert torch.equal(one, two)
        assert torch.equal(short.test(task)[0], long.test(task)[0])


def test_360_turns_the_images_it_shows() -> None:
    stream = made("digits-360", seed=7, batch_size=16)
    assert (stream.tasks, stream.test_tasks, stream.classes) == (1, 1, 10)
    assert not stream.boundaries
    assert stream.groups.tolist() == [[True] * 9 + [False]]
    expected = general.train_plan(DIGITS.train_y, torch.arange(1437), 16, seed=7)
    x, y = epoch(stream, 0)
    assert torch.equal(y, DIGITS.train_y[expected.rows])
    assert [len(batch) for batch in stream.positions(0, 0)] == list(expected.sizes)
    for row in (0, 17, 600, len(y) - 1):
        turn = rotation_map(expected.angles[row : row + 1], 8, 8)
        assert torch.equal(x[row], remap(DIGITS.train_x[expected.rows[row]][None], turn)[0])
    test_x, test_y = stream.test(0)
    assert torch.bincount(test_y).tolist() == torch.bincount(DIGITS.test_y)[:9].tolist()
    zeros = DIGITS.test_x[DIGITS.test_y == 0]
    third = remap(zeros[2:3], rotation_map(torch.tensor([720 / len(zeros)]), 8, 8))
    assert torch.equal(test_x[2], third[0])
    assert torch.equal(stream.positions(0, 0)[3], stream.positions(0, 5)[3])  # the order is part of the benchmark


@pytest.mark.parametrize("name", ["seq-digits", "perm-digits"])
def test_validation_rows_are_never_learned_and_replace_the_test_set(name: str) -> None:
    stream = build(name, dataset=numbered(), validation=0.2, seed=1, tasks=2)
    for task in range(2):
        learned, tested = bag(*epoch(stream, task)), bag(*stream.test(task))
        assert not set(learned) & set(tested)
        task_rows = DIGITS.train_y // 2 == task if name == "seq-digits" else DIGITS.train_y >= 0
        assert len(learned) + len(tested) == int(task_rows.sum())
        assert len(tested) == pytest.approx(0.2 * int(task_rows.sum()), abs=5)
        assert all(row[1] < 255 for row in tested)  # none of the official test set
    other = build(name, dataset=numbered(), validation=0.2, seed=2, tasks=2)
    assert bag(*other.test(0)) != bag(*stream.test(0))


def test_validation_of_360_stream() -> None:
    dataset = numbered()
    stream = build("digits-360", dataset=dataset, validation=0.25, seed=1)
    rows, held = hold_out(dataset.train_y, 0.25, 1)
    assert held is not None
    _, test_y = stream.test(0)
    assert torch.bincount(test_y).tolist() == torch.bincount(dataset.train_y[held])[:9].tolist()
    shown = general.train_plan(dataset.train_y, rows, stream.batch_size, 1)
    assert not set(shown.rows.tolist()) & set(held.tolist())
    assert torch.equal(stream.x[0], remap(dataset.train_x[shown.rows[:1]], rotation_map(shown.angles[:1], 2, 2))[0])


def test_split_cuts_the_classes_another_way() -> None:
    stream = made("seq-digits", split="3x3")
    assert (stream.tasks, stream.classes) == (3, 9)
    assert set(epoch(stream, 2)[1].tolist()) == {6, 7, 8}
    assert stream.groups.int().tolist()[1] == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert made("seq-digits", split="10x1", tasks=4).tasks == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("seq-digit", {}, "there is no stream 'seq-digit'; did you mean seq-digits"),
        ("seq-digits", {"batch_size": 0}, "`batch_size` is at least 1"),
        ("seq-digits", {"validation": 1.0}, "between 0 and 1, not 1.0"),
        ("seq-digits", {"validation": -0.1}, "between 0 and 1"),
        ("seq-digits", {"validation": float("nan")}, "between 0 and 1"),
        ("seq-digits", {"validation": 0.001}, "none to test on"),
        ("seq-digits", {"validation": 0.999}, "no row to learn from"),
        ("seq-digits", {"tasks": 6}, "asked for 6 tasks, but allowed is 1 to 5"),
        ("perm-digits", {"tasks": 0}, "allowed is a positive number"),
        ("digits-360", {"tasks": 2}, "allowed is 1 to 1"),
        ("digits-360", {"validation": 0.95}, "36 images"),
        ("seq-digits", {"split": "6x2"}, "wants 12 classes, but 'digits' has 10"),
        ("seq-digits", {"split": "2,5"}, "TASKSxCLASSES"),
        ("seq-digits", {"split": "0x5"}, "TASKSxCLASSES"),
        ("perm-digits", {"split": "5x2"}, "does not fit the stream 'perm-digits'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(SnclError, match=message) as caught:
        made(name, **options)
    assert "\n" not in str(caught.value)


def test_every_benchmark_is_well_formed() -> None:
    for name, benchmark in STREAMS.items():
        assert benchmark.description, name
        assert min(benchmark.tasks, benchmark.batch_size, benchmark.epochs) >= 1, name
        assert name.startswith(benchmark.kind) or name.endswith(benchmark.kind), name


def test_a_loaded_source_is_shared_by_the_streams_of_many_seeds() -> None:
    assert made("perm-digits", seed=0).x is made("perm-digits", seed=1).x
    assert made("perm-digits").source_fingerprint == DIGITS.fingerprint()


@pytest.mark.slow
def test_real_streams(real_data: Path) -> None:
    stream = build("mnist-360", real_data)
    assert len(stream.phases[0].rows) == 54051
    assert len(stream.test(0)[1]) == 10000 - 1009
    assert all(len(batch) <= 16 for batch in stream.positions(0, 0))
    cifar = build("seq-cifar10", real_data)
    assert [len(phase.rows) for phase in cifar.phases] == [10000] * 5
    assert [len(phase.rows) for phase in cifar.test_phases] == [2000] * 5
    assert len(cifar.positions(0, 0)) == 313
    permuted = build("perm-mnist", real_data)
    assert permuted.tasks == 20
    assert len(permuted.positions(19, 0)) == 469

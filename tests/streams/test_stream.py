"""A stream shows every sample once an epoch, in an order that depends on seed, task and epoch only."""

import pytest
import torch
from digit_streams import DIGITS, bag, epoch, made

from sncl.streams.build import build
from sncl.streams.datasets.sources import Dataset
from sncl.streams.stream import Stream


@pytest.mark.parametrize("name", ["seq-digits", "perm-digits", "digits-360"])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 5000])
def test_every_row_comes_once_in_batches_of_the_right_size(name: str, batch_size: int) -> None:
    stream = made(name, batch_size=batch_size, tasks=1)
    positions = stream.positions(0, 0)
    count = len(stream.phases[0].rows)
    assert torch.cat(positions).sort().values.tolist() == list(range(count))
    if stream.boundaries:
        assert {len(batch) for batch in positions[:-1]} <= {batch_size}
        assert len(positions[-1]) == (count - 1) % batch_size + 1
    else:
        assert 0 < max(len(batch) for batch in positions) <= batch_size


def test_order_depends_on_seed_task_and_epoch_only() -> None:
    one, same, other = (made("perm-digits", seed=seed, tasks=2) for seed in (3, 3, 4))

    def order(stream: Stream, task: int, number: int) -> list[int]:
        return torch.cat(stream.positions(task, number)).tolist()  # type: ignore[no-any-return]

    assert order(one, 1, 2) == order(same, 1, 2)
    assert order(made("perm-digits", seed=3, tasks=2, batch_size=5), 1, 2) == order(one, 1, 2)
    orders = [order(one, 0, 0), order(one, 0, 1), order(one, 1, 0), order(other, 0, 0)]
    assert len({tuple(found) for found in orders}) == 4


@pytest.mark.parametrize("name", ["seq-digits", "perm-digits", "digits-360"])
def test_joint_is_everything_at_once(name: str) -> None:
    stream = made(name, tasks=None if name == "digits-360" else 3)
    joint = stream.joint()
    assert joint.tasks == 1
    assert not joint.boundaries
    assert joint.scenario == stream.scenario
    assert joint.test_tasks == stream.test_tasks
    parts = [epoch(stream, task) for task in range(stream.tasks)]
    x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    assert bag(*epoch(joint, 0)) == bag(x, y)
    first, second = epoch(joint, 0, 0)[1], epoch(joint, 0, 1)[1]
    assert not torch.equal(first, second)
    assert len(first[:200].unique()) > 4  # mixed, not task after task
    assert torch.equal(joint.test(0)[0], stream.test(0)[0])


def test_mapped_data_stays_on_the_host() -> None:
    """Only batches and tests go to the device; ``meta`` stands in for one."""
    mapped = Dataset("s", DIGITS.train_x, DIGITS.train_y, DIGITS.test_x, DIGITS.test_y, 10, mapped=True)
    stream = build("seq-digits", dataset=mapped).to("meta")
    assert stream.x is DIGITS.train_x
    x, y = stream.batch(0, stream.positions(0, 0)[0])
    assert x.device.type == y.device.type == stream.test(0)[0].device.type == "meta"
    moved = made("seq-digits").to("meta")
    assert moved.x.device.type == moved.test_x.device.type == "meta"


@pytest.mark.parametrize("name", ["perm-digits", "rot-digits"])
def test_a_longer_stream_keeps_no_more_test_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = made(name, tasks=6)
    size = stream.test(0)[0].nbytes
    monkeypatch.setattr("sncl.streams.stream.KEPT_BYTES", 2 * size + 1)
    monkeypatch.setattr("sncl.streams.stream.MAPPED_AT_ONCE", 7)
    again = made(name, tasks=6)
    assert stream.maps is not None
    for task in range(6):
        rows, domains = stream.test_phases[task]
        blank = torch.cat([stream.test_x[rows].flatten(2), torch.zeros(len(rows), 1, 1, dtype=torch.uint8)], 2)
        expected = blank[:, :, stream.maps[domains[0]]].reshape(len(rows), 1, 8, 8)
        for _ in range(2):
            x, y = again.test(task)
            assert torch.equal(x, expected) and torch.equal(y, stream.test_y[rows])
    assert [again.test(task)[0] is again.test(task)[0] for task in range(6)] == [True, True, *[False] * 4]


def test_a_task_more_costs_a_stream_one_pixel_map() -> None:
    def stored(tasks: int) -> int:
        stream = made("perm-digits", tasks=tasks)
        assert stream.maps is not None
        tensors = [each for phase in (*stream.phases, *stream.test_phases) for each in phase]
        held = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
        return sum(held.values()) + stream.maps.nbytes

    assert stored(50) - stored(5) == 45 * (64 * 8 + 2 * 8)  # and the number of its domain, for training and test


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["seq-digits", "rot-digits", "digits-360"])
def test_streams_on_the_gpu_are_the_streams_on_the_host(name: str) -> None:
    host, device = made(name), made(name, device="cuda")
    for one, two in zip(epoch(host, 0), epoch(device, 0), strict=True):
        assert two.is_cuda
        assert torch.equal(one, two.cpu())
    assert torch.equal(host.test(0)[0], device.test(0)[0].cpu())
    assert torch.equal(epoch(host.joint(), 0)[0], epoch(device.joint(), 0)[0].cpu())


def test_a_stream_is_shown_in_two_lines() -> None:
    stream = build("seq-digits", tasks=2, batch_size=8, seed=3)
    learned, tested = (sum(len(phase.rows) for phase in each) for each in (stream.phases, stream.test_phases))
    assert repr(stream).splitlines() == [
        "Stream(seq-digits: class-il, 2 tasks, 10 classes, seed 3;",
        f"       {learned} samples to learn from in batches of 8, {tested} to test on, 1 x 8 x 8 uint8, on cpu)",
    ]
    assert repr(stream.phases[0]) == f"Phase({len(stream.phases[0].rows)} samples)"
    assert "1 task, all at once, 10 classes" in repr(stream.joint())

"""The General-CL schedule against a slow reading of its rules, one image at a time."""

import pytest
import torch

from sncl.errors import SnclError
from sncl.streams import general
from sncl.streams.general import batch_schedule, chunk_sizes, train_plan

MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851]  # training images of the digits 0..8


def slow_stream(counts: list[int], batch_size: int) -> list[list[tuple[int, int, float]]]:
    """Batches of (digit, chunk, angle), by simulation."""
    left: list[list[int]] = []
    for count in counts:
        size = count // 6 + 1
        left.append([min(size, count - start) for start in range(0, count, size)])
    turned = [0] * len(counts)
    batches = []
    for _ in range(3):
        for a in range(len(counts)):
            b = (a + 1) % len(counts)
            in_a, in_b = left[a].pop(), left[b].pop()
            number_a, number_b = len(left[a]), len(left[b])
            while in_a > 0 and in_b > 0:
                from_a = min(round(batch_size * in_a / (in_a + in_b)), in_a)
                from_b = min(batch_size - from_a, in_b)
                batch = []
                for digit, chunk, many in ((a, number_a, from_a), (b, number_b, from_b)):
                    for _ in range(many):
                        angle = ((digit - 1) * 60 + turned[digit] * 360 / counts[digit]) % 360
                        turned[digit] += 1
                        batch.append((digit, chunk, angle))
                in_a, in_b = in_a - from_a, in_b - from_b
                batches.append(batch)
    assert all(not chunks for chunks in left)
    return batches


def labels(counts: list[int]) -> torch.Tensor:
    """Labels in an order that mixes the classes."""
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(3))]


@pytest.mark.parametrize("batch_size", [1, 4, 16, 1000])
def test_stream_follows_the_rules(batch_size: int) -> None:
    counts = [143, 36, 150, 97, 60, 61, 62, 63, 64]
    y = labels([*counts, 50])  # nines are never shown
    found = train_plan(y, torch.arange(len(y)), batch_size, seed=5)
    expected = slow_stream(counts, batch_size)
    assert list(found.sizes) == [len(batch) for batch in expected]
    flat = [image for batch in expected for image in batch]
    assert y[found.rows].tolist() == [digit for digit, _, _ in flat]
    assert found.angles.remainder(360).tolist() == pytest.approx([angle for _, _, angle in flat])
    for digit, count in enumerate(counts):  # every image comes from the chunk of its segment
        here = y[found.rows] == digit
        place = torch.full((len(y),), -1)
        place[y == digit] = torch.arange(count)
        chunks = place[found.rows[here]] // (count // 6 + 1)
        assert chunks.tolist() == [chunk for shown_digit, chunk, _ in flat if shown_digit == digit]


def test_mnist_shows_its_nominal_length() -> None:
    for batch_size, lost in ((16, 0), (1, 27)):  # one by one, the last image of each segment is left over
        assert sum(run.length for batch in batch_schedule(MNIST, batch_size) for run in batch) == 54051 - lost
    first = batch_schedule(MNIST, 16)[0]
    assert [(run.digit, run.chunk) for run in first] == [(0, 5), (1, 5)]
    assert [run.length for run in first] == [7, 9]  # 983 of 2115 images left are zeros


def test_images_are_drawn_with_replacement_by_seed() -> None:
    y = labels([120] * 9)
    rows = torch.arange(len(y))
    one, same, other = (train_plan(y, rows, 8, seed) for seed in (0, 0, 1))
    assert torch.equal(one.rows, same.rows)
    assert not torch.equal(one.rows, other.rows)
    assert torch.equal(y[one.rows], y[other.rows])
    assert len(one.rows.unique()) < len(one.rows)
    many = torch.cat([train_plan(y, rows, 8, seed).rows for seed in range(40)])
    assert len(many.unique()) == len(y)  # no image of a chunk is out of reach


def test_too_few_images_for_six_chunks() -> None:
    assert chunk_sizes(36) == [7, 7, 7, 7, 7, 1]
    assert chunk_sizes(11) == [2, 2, 2, 2, 2, 1]
    with pytest.raises(SnclError, match="36 images"):
        chunk_sizes(30)


def test_test_set_is_every_image_once_through_a_full_turn() -> None:
    counts = [4, 5, 3, 8, 1, 2, 6, 7, 9]
    y = labels([*counts, 10])
    found = general.test_plan(y, torch.arange(len(y)))
    assert found.rows.sort().values.tolist() == (y < 9).nonzero().flatten().tolist()
    assert y[found.rows].tolist() == [digit for digit, count in enumerate(counts) for _ in range(count)]
    assert found.angles.tolist() == pytest.approx([360 / count * i for count in counts for i in range(count)])
    assert found.rows[:4].tolist() == (y == 0).nonzero().flatten().tolist()  # file order

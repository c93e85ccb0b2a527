"""Standardisation by the first samples of a stream, and running: nothing of it depends on later data."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sncl
from sncl.streams.build import build
from sncl.streams.standardisation import FARTHEST, MNIST_MEAN, MNIST_STD, RunningScale, brightness_transform
from sncl.streams.transforms import CropFlip, Unit


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([1e-12, 1.0, 1e9]), st.integers(0, 99))
def test_pieces_make_the_mean_and_deviation_of_the_whole(sizes: list[int], size: float, seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    x = size * (torch.rand(sum(sizes) + 1, 3, generator=numbers, dtype=torch.float64) + torch.tensor([0.0, 5.0, -1e3]))
    scale = RunningScale(3)
    for part in x.split([*sizes, 1]):
        scale.update(part)
    expected = ((x - x.mean(0)) / x.std(0, correction=0)).clamp(-FARTHEST, FARTHEST)
    assert torch.allclose(scale.eval(x).double(), expected, atol=1e-5)
    assert scale.eval(x).dtype == torch.float32 and torch.equal(scale(x, torch.zeros(0)), scale.eval(x))


def test_small_differences_of_large_numbers_stay() -> None:
    x = torch.tensor([[1.6e9 + 1], [1.6e9 + 2], [1.6e9 + 3]], dtype=torch.float64)
    scale = RunningScale(1)
    scale.update(x)
    assert torch.allclose(scale.eval(x)[:, 0], torch.tensor([-(1.5**0.5), 0.0, 1.5**0.5]))


def test_what_never_varied_is_only_centred_and_outliers_are_bounded() -> None:
    scale = RunningScale(2)
    for _ in range(7):
        scale.update(torch.tensor([[0.1, 0.0], [0.1, 1.0], [0.1, 2.0]], dtype=torch.float64))
    seen = scale.eval(torch.tensor([[0.1, 1e30], [0.6, -1e30]], dtype=torch.float64))
    assert torch.allclose(seen, torch.tensor([[0.0, FARTHEST], [0.5, -FARTHEST]]))


def test_images_have_one_scale_for_each_channel() -> None:
    x = torch.rand(5, 2, 3, 4, dtype=torch.float64) * torch.tensor([1.0, 100.0])[:, None, None]
    scale = RunningScale(2, torch.float64)
    scale.update(x)
    seen = scale.eval(x)
    assert torch.allclose(seen.mean((0, 2, 3)), torch.zeros(2).double(), atol=1e-9)
    assert torch.allclose(seen.std((0, 2, 3), correction=0), torch.ones(2).double())


def test_its_state_is_all_it_knows() -> None:
    first, second = RunningScale(3), RunningScale(3)
    x = torch.rand(10, 3)
    first.update(x)
    second.load({name: value.clone() for name, value in first.state().items()})
    for each in (first, second):
        each.update(2 * x)
    assert torch.equal(first.eval(x), second.eval(x))


# --- streams of the user's data ----------------------------------------------------------------------------------


def test_standardised_by_the_first_task_alone(tmp_path: Path) -> None:
    """What comes later moves nothing that came before."""
    numbers = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = numbers.normal(5, 3, size=(80, 3))
    x[:, 2] = numbers.integers(0, 2, 80)
    changed = x.copy()
    changed[y >= 2, :2] *= 1e6
    streams = []
    for name, values in (("one.npz", x), ("other.npz", changed)):
        arrays = {"x": values, "y": y, "x_test": values[:8], "y_test": y[:8]}
        np.savez(tmp_path / name, **arrays)
        streams.append(sncl.stream(str(tmp_path / name)))
    first, second = (stream.batch(0, torch.arange(40))[0] for stream in streams)
    assert first.dtype == torch.float32
    assert first.equal(second)
    early = x[y < 2]
    expected = (early[:, :2] - early[:, :2].mean(0)) / early[:, :2].std(0)
    assert torch.allclose(first[:, :2], torch.tensor(expected, dtype=torch.float32), atol=1e-6)
    assert first[:, 2].tolist() == early[:, 2].tolist()  # truth values stay
    assert streams[1].batch(1, torch.arange(40))[0].abs().max() == 10  # and what is far off is moved near
    tested = streams[0].test(0)[0][:, :2]
    assert torch.allclose(
        tested, torch.tensor((x[:8][y[:8] < 2][:, :2] - early[:, :2].mean(0)) / early[:, :2].std(0)).float()
    )


@pytest.mark.parametrize("cut", ["classes", "none"])
def test_which_columns_are_binary_is_seen_in_the_first_samples_alone(tmp_path: Path, cut: str) -> None:
    """A column of 0 and 1 stays as it is, even where later data hold other values in it."""
    y = np.repeat(np.arange(4), 20)
    x = np.random.default_rng(0).integers(0, 2, size=(80, 2)).astype(float)
    later = x.copy()
    later[60:, 0] = 7.5
    streams = []
    for name, values in (("one.npz", x), ("other.npz", later)):
        np.savez(tmp_path / name, x=values, y=y, x_test=values[::10], y_test=y[::10])
        streams.append(sncl.stream(str(tmp_path / name), cut=cut))
    first, second = (stream.x[:60] for stream in streams)
    assert first.equal(second)
    assert first.equal(torch.tensor(x[:60]).float())


def test_without_tasks_the_first_tenth_counts(tmp_path: Path) -> None:
    x = np.arange(100.0)[:, None]
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(100) % 2, x_test=x[:2], y_test=np.arange(2))
    stream = sncl.stream(str(tmp_path / "mine.npz"), cut="none", batch_size=32)
    shown = torch.cat([stream.batch(0, positions)[0] for positions in stream.positions(0, 0)])
    assert shown.flatten().tolist() == pytest.approx(((x[:, 0] - 4.5) / x[:10].std()).clip(-10, 10).tolist())
    assert [len(positions) for positions in stream.positions(0, 0)] == [32, 32, 32, 4]
    assert (stream.scenario, stream.boundaries, stream.tasks) == ("general", False, 1)


def test_images_of_floats_are_standardised_by_channel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal((1.0, 50.0, 0.0), (1.0, 9.0, 0.1), size=(40, 4, 4, 3))
    np.savez(tmp_path / "mine.npz", x=x.astype(np.float32), y=np.arange(40) % 2, domain=np.repeat([0, 1], 20))
    stream = sncl.stream(str(tmp_path / "mine.npz"), split="1x2", cut="classes")
    shown = stream.batch(0, torch.arange(32))[0]
    assert stream.shape == (3, 4, 4)
    assert torch.allclose(shown.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(shown.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


# --- the brightness of images ------------------------------------------------------------------------------------


def grey(seed: int = 0, low: int = 0, high: int = 256, shape: tuple[int, ...] = (40, 1, 28, 28)) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("low", "high"), [(0, 256), (100, 256), (200, 256), (120, 140)])
def test_bright_images_get_the_mean_and_deviation_that_settings_were_chosen_for(low: int, high: int) -> None:
    x = grey(0, low, high)
    seen = brightness_transform(x).eval(x).double()
    assert float(seen.mean()) == pytest.approx(MNIST_MEAN, abs=1e-4)
    assert float(seen.std(correction=0)) == pytest.approx(MNIST_STD, abs=1e-4)


def test_dark_or_small_images_stay_as_they_are() -> None:
    assert brightness_transform(grey(high=120)) == brightness_transform(grey(shape=(40, 1, 8, 8))) == Unit()


def test_images_of_one_value_are_only_shifted() -> None:
    x = torch.full((3, 1, 28, 28), 255, dtype=torch.uint8)
    assert float(brightness_transform(x).eval(x).mean()) == pytest.approx(MNIST_MEAN)


def test_only_the_first_task_says_how_bright_the_users_images_are(tmp_path: Path) -> None:
    y = np.repeat([0, 1, 2, 3], 10)
    x = grey(low=100).numpy()[:, 0]
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x=np.where(y[:, None, None] < 2, x, 0), y=y)
    first, second = (build(f"npz:{tmp_path / name}") for name in ("a.npz", "b.npz"))
    assert first.transform == second.transform != Unit()
    cropped = build(f"npz:{tmp_path / 'a.npz'}", augment="crop-flip").transform
    assert isinstance(cropped, CropFlip) and isinstance(first.transform, Unit)
    assert (cropped.mean, cropped.std) == ((first.transform.mean,), (first.transform.std,))


def test_a_network_that_normalises_sees_images_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=grey(low=100, shape=(40, 3, 8, 8)).numpy(), y=np.repeat([0, 1, 2, 3], 10))
    assert build(f"npz:{tmp_path / 'a.npz'}").transform == Unit()


def test_real_mnist_is_as_it_was(real_data: Path) -> None:
    assert all(build(name, real_data).transform == Unit() for name in ("perm-mnist", "mnist-360", "seq-mnist"))


@pytest.mark.parametrize("unscaled", [(), (1, 3)])
def test_single_samples_are_included_by_the_formula_of_batches(unscaled: tuple[int, ...]) -> None:
    """Bit for bit, for features of every size."""
    draw = torch.Generator().manual_seed(0)
    size = torch.tensor([1, 1e-3, 1e9, 5, 1e-30, 0, 1e300], dtype=torch.float64)
    ours, theirs = RunningScale(7, unscaled=unscaled), RunningScale(7, unscaled=unscaled)
    for number in range(300):
        x = torch.randn(1, 7, generator=draw).double() * size * (1 if number % 2 else 0.1) + (size == 0) * 2.5
        x = x.clamp(-1e30, 1e30).float() if number % 3 == 0 else x
        ours.update(x)
        values = x.double()
        values[:, list(unscaled)] = 0.0
        mean, total = values.mean(0), theirs.rows + 1
        away = mean - theirs.mean
        theirs.squares += (values - mean).square().sum(0) + away.square() * theirs.rows * 1 / total
        theirs.mean += away * 1 / total
        theirs.rows.copy_(total)
        theirs._rescale()
        for name in ("rows", "mean", "squares", "factor"):
            assert torch.equal(getattr(ours, name).nan_to_num(), getattr(theirs, name).nan_to_num()), name


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_scale_that_saw_single_samples_goes_on_by_itself(twin: Callable[[RunningScale], Any]) -> None:
    first = RunningScale(3)
    samples = torch.randn(10, 1, 3)
    for x in samples[:5]:
        first.update(x)
    second, before = twin(first), [each.clone() for each in first.state().values()]
    for x in samples[5:]:
        second.update(x)
    assert all(map(torch.equal, first.state().values(), before))
    for x in samples[5:]:
        first.update(x)
    assert all(map(torch.equal, first.state().values(), second.state().values()))
    assert torch.equal(first.factor, second.factor)
    first.load(RunningScale(3).state())
    assert not first.state()["mean"].any()
    first.update(samples[0])
    assert torch.equal(first.mean, samples[0, 0].double())

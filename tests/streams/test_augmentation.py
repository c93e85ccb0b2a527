"""Strong augmentation of whole batches, against one image at a time and pixel by pixel."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Sncl
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from torch import Tensor
from user_files import read_data, save_arrays

from sncl.errors import SnclError
from sncl.runs.plan import plan
from sncl.streams.augmentation import Strong, recoloured
from sncl.streams.benchmarks import STREAMS, augmented
from sncl.streams.preprocessing import describe_transform, made_transform
from sncl.streams.transforms import CropFlip
from sncl.tensors.random import generator

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
STRONG = Strong(2, MEAN, STD)


def noise(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator(0, "images"))


def numbers(rows: int) -> Tensor:
    return torch.rand(rows, Strong.randoms, dtype=torch.float64, generator=generator(0, "numbers"))


def luma(image: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.tensordot([0.299, 0.587, 0.114], image, 1) if len(image) == 3 else image.mean(0)


def slowly(
    x: Tensor, u: list[float], padding: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> NDArray[np.float64]:
    """One image, step by step, in double precision."""
    channels, height, width = x.shape
    padded = np.zeros((channels, height + 2 * padding, width + 2 * padding))
    padded[:, padding : padding + height, padding : padding + width] = x.numpy() / 255
    down, right = (int(each * (2 * padding + 1)) for each in u[:2])
    image = padded[:, down : down + height, right : right + width]
    image = image[:, :, ::-1] if u[2] < 0.5 else image
    brightness, contrast, saturation = (0.6 + 0.8 * each for each in u[3:6])
    image = np.clip(image * brightness, 0, 1)
    image = np.clip(luma(image).mean() * (1 - contrast) + image * contrast, 0, 1)
    image = np.clip(luma(image)[None] * (1 - saturation) + image * saturation, 0, 1)
    image = (image - np.reshape(mean, (-1, 1, 1))) / np.reshape(std, (-1, 1, 1))
    top, left = (
        int(each * length) - round(0.375 * length) // 2 for each, length in zip(u[6:], (height, width), strict=True)
    )
    for row in range(max(top, 0), min(top + round(0.375 * height), height)):
        for column in range(max(left, 0), min(left + round(0.375 * width), width)):
            image[:, row, column] = 0
    return image


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 8, 11), (1, 9, 9), (2, 16, 16)])
def test_a_batch_is_augmented_as_image_by_image(shape: tuple[int, ...]) -> None:
    x, u, channels = noise(60, *shape), numbers(60), shape[0]
    view = Strong(2, MEAN[:channels], STD[:channels])
    expected = np.stack([slowly(row, each, 2, view.mean, view.std) for row, each in zip(x, u.tolist(), strict=True)])
    found = view(x, u)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)


def test_the_hole_is_that_of_the_paper_on_both_data_sets() -> None:
    for name, size in (("seq-cifar10", 12), ("seq-tinyimagenet", 24)):
        length = 2 * size + 2 * size // 3
        view = augmented(name, STREAMS[name], "strong").transform
        u = torch.tensor([[0.5, 0.5, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
        hidden = view(noise(1, 3, length, length), u)[0, 0] == 0
        rows, columns = hidden.any(1).nonzero()[:, 0].tolist(), hidden.any(0).nonzero()[:, 0].tolist()
        assert len(rows) == len(columns) == size and hidden.sum() == size * size
        assert rows[0] == length // 2 - size // 2


def test_with_middle_numbers_only_the_hole_is_other_than_the_still_view() -> None:
    x = noise(5, 3, 32, 32)
    u = torch.tensor([[0.5, 0.5, 0.7, 0.5, 0.5, 0.5, 0.0, 0.0]] * 5, dtype=torch.float64)
    found, still = STRONG(x, u), STRONG.eval(x)
    assert not found[:, :, :6, :6].any()  # a quarter of it lies in the image
    still[:, :, :6, :6] = 0
    torch.testing.assert_close(found, still, atol=2e-6, rtol=0)


def test_bytes_and_floats_give_the_same_bits() -> None:
    x, u = noise(20, 3, 16, 16), numbers(20)
    assert torch.equal(STRONG(x, u), STRONG(x.float(), u))
    assert torch.equal(STRONG.eval(x), CropFlip(2, MEAN, STD).eval(x))


def test_an_image_does_not_depend_on_its_batch() -> None:
    x, u = noise(20, 3, 16, 16), numbers(20)
    assert torch.equal(STRONG(x, u)[3:7], STRONG(x[3:7], u[3:7]))
    almost_one = torch.full((1, Strong.randoms), 1 - 2**-53, dtype=torch.float64)
    assert torch.equal(STRONG(x[:1], almost_one), STRONG(x[:1], almost_one.float()))  # 1.0 in single precision


def test_colours_change_as_pillow_changes_them() -> None:
    """Up to its rounding to bytes behind each of the three."""
    x, factors = noise(8, 3, 12, 12), torch.tensor([[0.7, 1.3, 0.6]] * 8)
    found = (recoloured(x.float() / 255, factors) * 255).round()
    for row, image in zip(x, found, strict=True):
        pillow = Image.fromarray(row.permute(1, 2, 0).numpy())
        for kind, factor in ((ImageEnhance.Brightness, 0.7), (ImageEnhance.Contrast, 1.3), (ImageEnhance.Color, 0.6)):
            pillow = kind(pillow).enhance(factor)
        assert np.abs(np.asarray(pillow).transpose(2, 0, 1).astype(float) - image.numpy()).max() <= 3


def test_saturation_zero_is_grey_and_brightness_alone_keeps_the_hue() -> None:
    x = noise(2, 3, 4, 4).float() / 255
    grey = recoloured(x, torch.tensor([[1.0, 1.0, 0.0]] * 2))
    torch.testing.assert_close(grey[:, 0], grey[:, 1])
    dark = recoloured(x, torch.tensor([[0.6, 1.0, 1.0]] * 2))
    before, after = (colorsys.rgb_to_hsv(*each[0, :, 1, 2].tolist())[0] for each in (x, dark))
    assert after == pytest.approx(before, abs=1e-5)


def test_it_is_kept_as_plain_data() -> None:
    assert made_transform(describe_transform(STRONG)) == STRONG
    assert type(made_transform(describe_transform(CropFlip(2, MEAN, STD)))) is CropFlip
    assert CropFlip(2, MEAN, STD) != STRONG


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_it_can_be_captured_in_a_cuda_graph() -> None:
    x, u = noise(16, 3, 32, 32).cuda(), numbers(16).cuda()
    STRONG(x, u)  # the constants go to the device before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = STRONG(x, u)
    x.copy_(noise(17, 3, 32, 32)[1:])
    graph.replay()
    torch.testing.assert_close(out.cpu(), STRONG(x.cpu(), u.cpu()))


# --- as a setting ------------------------------------------------------------------------------------------------


def test_it_changes_training_and_neither_tests_nor_what_is_stored() -> None:
    usual = STREAMS["seq-cifar10"]
    strong = augmented("seq-cifar10", usual, "strong")
    assert isinstance(strong.transform, Strong) and augmented("seq-cifar10", strong, "crop-flip") == usual
    x = noise(3, 3, 32, 32)
    assert torch.equal(strong.transform.eval(x), usual.transform.eval(x))


def test_crop_and_flip_is_no_setting_of_a_run_and_strong_is() -> None:
    def settings(**given: str) -> dict[str, object]:
        return plan("seq-cifar10", "er", device="cpu", settings=given).settings

    assert settings(augment="crop-flip") == settings() and "augment" not in settings()
    assert settings(augment="strong") == settings() | {"augment": "strong"}


@pytest.mark.parametrize("stream", [name for name, each in STREAMS.items() if not isinstance(each.transform, CropFlip)])
def test_samples_that_are_not_augmented_stay_so(stream: str, sncl: Sncl) -> None:
    done = sncl("train", "--stream", stream, "--method", "sgd", "--set", "augment=strong", "--device", "cpu")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == f"error: --set augment=strong does not fit {stream}, whose samples are not augmented; leave it out\n"
    )


def test_another_augmentation_is_none() -> None:
    with pytest.raises(SnclError, match="`augment=none` does not fit seq-cifar10; allowed is crop-flip, strong"):
        plan("seq-cifar10", "er", device="cpu", settings={"augment": "none"})


def test_numbers_of_the_user_cannot_be_augmented(tmp_path: Path) -> None:
    loaded = read_data(save_arrays(tmp_path / "a.npz"))
    with pytest.raises(SnclError, match=r"`augment=strong` does not fit .*allowed is none"):
        plan("npz:a", "er", user_data=loaded.user_data, settings={"augment": "strong"})

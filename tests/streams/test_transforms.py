"""The one gather behind permutation, rotation, crop and flip, against slow references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from sncl.streams.transforms import CropFlip, Identity, Unit, remap, rotation_map


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Random images with no zero in them, so that a blank pixel is one that was left blank."""
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def turned_by_pil(x: Tensor, angle: float) -> Tensor:
    return torch.from_numpy(np.asarray(Image.fromarray(x.numpy()).rotate(angle)).copy())


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 8), (32, 32), (5, 9)])
def test_rotation_equals_pil_pixel_for_pixel(height: int, width: int) -> None:
    whole = torch.arange(-90, 721, 1.0, dtype=torch.float64)  # every special angle, and beyond one turn
    odd = torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 360
    angles = torch.cat([whole, odd])
    x = noise(1, 1, height, width)
    turned = remap(x.expand(len(angles), -1, -1, -1), rotation_map(angles, height, width))
    expected = torch.stack([turned_by_pil(x[0, 0], angle) for angle in angles.tolist()])
    assert torch.equal(turned[:, 0], expected)


@settings(deadline=None)
@given(st.floats(-1000, 1000, allow_nan=False))
def test_rotation_equals_pil_at_any_angle(angle: float) -> None:
    x = noise(1, 1, 8, 8)
    turned = remap(x, rotation_map(torch.tensor([angle], dtype=torch.float64), 8, 8))
    assert torch.equal(turned[0, 0], turned_by_pil(x[0, 0], angle))


def test_rotation_is_counter_clockwise() -> None:
    x = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)[None, None]
    turned = remap(x, rotation_map(torch.tensor([90.0]), 2, 2))
    assert turned[0, 0].tolist() == [[2, 4], [1, 3]]


def test_remap_takes_one_map_or_one_for_each_row() -> None:
    x = noise(2, 3, 2, 2)
    shift, blank = torch.tensor([1, 2, 3, 0]), torch.tensor([4, 4, 0, 4])
    one = remap(x, shift)
    assert torch.equal(one.flatten(2), x.flatten(2)[:, :, [1, 2, 3, 0]])
    each = remap(x, torch.stack([shift, blank]))
    assert torch.equal(each[0], one[0])
    assert torch.equal(each[1, :, 1, 0], x[1, :, 0, 0])
    assert each[1].sum() == each[1, :, 1, 0].sum()  # the other pixels are blank
    assert each.dtype == torch.uint8


def slow_crop_flip(x: Tensor, padding: int, down: int, right: int, flip: bool) -> Tensor:
    channels, height, width = x.shape
    padded = torch.zeros(channels, height + 2 * padding, width + 2 * padding)
    padded[:, padding : padding + height, padding : padding + width] = x
    crop = padded[:, down : down + height, right : right + width]
    return crop.flip(2) if flip else crop


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
def test_crop_flip_pads_with_black_before_it_normalises(precision: torch.dtype) -> None:
    view = CropFlip(2, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    x = noise(200, 3, 6, 7)
    uniform = torch.rand(200, view.randoms, dtype=precision, generator=torch.Generator().manual_seed(2))
    rows = zip(x, uniform.tolist(), strict=True)
    cropped = torch.stack([slow_crop_flip(row, 2, int(u * 5), int(v * 5), w < 0.5) for row, (u, v, w) in rows])
    mean, std = torch.tensor(view.mean)[:, None, None], torch.tensor(view.std)[:, None, None]
    out = view(x, uniform)
    assert torch.equal(out, (cropped / 255 - mean) / std)
    assert out.dtype == torch.float32


def test_crop_flip_reaches_every_shift_and_no_more() -> None:
    view = CropFlip(1, mean=(0.0,), std=(1.0,))
    x = torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    x[0, 0, 1, 1] = 255
    almost_one = 1 - 2**-53
    for u, place in ((0.0, 2), (0.34, 1), (almost_one, 0)):
        uniform = torch.tensor([[u, u, 0.9]], dtype=torch.float64)
        assert view(x, uniform)[0, 0].nonzero().tolist() == [[place, place]]
    rounded_up = torch.tensor([[almost_one, almost_one, 0.9]], dtype=torch.float32)  # 1.0 in single precision
    assert view(x, rounded_up)[0, 0].nonzero().tolist() == [[0, 0]]


def test_crop_flip_without_shift_is_the_still_view() -> None:
    view = CropFlip(4, mean=(0.5,), std=(0.5,))
    x = noise(3, 1, 8, 8)
    centre = torch.tensor([[0.5, 0.5, 0.7]] * 3, dtype=torch.float64)
    assert torch.equal(view(x, centre), view.eval(x))


def test_unit_and_identity() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)
    nothing = torch.empty(1, 0)
    assert Unit()(x, nothing).flatten().tolist() == pytest.approx([0.0, 0.2, 1.0])
    assert torch.equal(Unit().eval(x), Unit()(x, nothing))
    assert Unit(0.2, 0.4)(x, nothing).flatten().tolist() == pytest.approx([-0.5, 0.0, 2.0])
    assert Identity()(x, nothing) is x
    assert Identity().eval(x) is x


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_views_can_be_captured_in_a_cuda_graph() -> None:
    view = CropFlip(4, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    images, uniform = noise(2, 16, 3, 32, 32), torch.rand(2, 16, 3, dtype=torch.float64)
    x, u = images[0].cuda(), uniform[0].cuda()
    view(x, u)  # the constants go to the device before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = view(x, u)
    x.copy_(images[1])
    u.copy_(uniform[1])
    graph.replay()
    torch.testing.assert_close(out.cpu(), view(images[1], uniform[1]))

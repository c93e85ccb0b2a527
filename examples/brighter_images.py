"""Images like MNIST's but brighter, in MNIST's files: what the settings shipped for MNIST are tried on.

    python examples/brighter_images.py DATA DEST  # DATA holds MNIST and CIFAR-10
    sncl train --data DEST/inverted --stream perm-mnist --method sncl --memory 200 --seeds 5
    sncl train --stream DEST/inverted-rot.npz --method sncl --seeds 5

``inverted`` is 255 - x, ``bright`` min(x + 100, 255), ``grey`` CIFAR-10 without colour at 28 x 28. Of each there are
12,000 images as user data, too: ``-seq.npz`` (classes), ``-perm.npz`` and ``-rot.npz`` (five domains of permuted or
turned images) and ``-360.npz`` (in the order of MNIST-360, for ``--cut none``). ``drifting.npz`` is ``inverted-rot`` as
floats: the corners that are turned in are black, which nothing in the first domain is.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sncl.streams import general
from sncl.streams.datasets import cifar10, mnist
from sncl.streams.datasets.images import Images
from sncl.streams.transforms import remap, rotation_map

LUMA = torch.tensor([0.299, 0.587, 0.114])[:, None, None]  # weights of red, green and blue, ITU-R BT.601
SIDE = 28
CHOSEN, DOMAINS, TURN = 12_000, 5, 36.0  # images, domains, degrees from one to the next
BATCH = 16  # of the stream whose order is that of MNIST-360


def without_colour(x: Tensor) -> Tensor:
    """Colour images [samples, 3, height, width] as grey ones of MNIST's size, bytes."""
    parts = [(part.float() * LUMA).sum(1, keepdim=True) for part in x.split(5000)]
    small = F.interpolate(torch.cat(parts), (SIDE, SIDE), mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)


def write(root: Path, images: Images) -> None:
    """The four files of MNIST."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    arrays = (images.train_x[:, 0], images.train_y, images.test_x[:, 0], images.test_y)
    for name, values in zip(mnist.FILES, arrays, strict=True):
        header = bytes((0, 0, 8, values.dim())) + struct.pack(f">{values.dim()}I", *values.shape)
        (folder / name).write_bytes(header + values.to(torch.uint8).numpy().tobytes())


def write_user_data(root: Path, name: str, images: Images) -> None:
    """Some of the training images as arrays, for every way to cut user data."""
    numbers = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(images.train_y), generator=numbers)[:CHOSEN]
    x, y, domain = images.train_x[chosen], images.train_y[chosen], torch.arange(CHOSEN) % DOMAINS
    permuted = torch.stack([torch.randperm(SIDE * SIDE, generator=numbers) for _ in range(DOMAINS)])
    turned = rotation_map(TURN * torch.arange(DOMAINS, dtype=torch.float64), SIDE, SIDE)
    plan = general.train_plan(y, torch.arange(CHOSEN), BATCH, seed=0)
    rotated = remap(x, turned[domain]).numpy()
    np.savez(root / f"{name}-seq.npz", x=x.numpy(), y=y.numpy())
    np.savez(root / f"{name}-perm.npz", x=remap(x, permuted[domain], blanks=False).numpy(), y=y.numpy(), domain=domain)
    np.savez(root / f"{name}-rot.npz", x=rotated, y=y.numpy(), domain=domain)
    np.savez(root / f"{name}-360.npz", x=general.render(x, plan).numpy(), y=y[plan.rows].numpy())
    if name == "inverted":
        np.savez(root / "drifting.npz", x=rotated.astype(np.float32) / 255, y=y.numpy(), domain=domain)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, destination = map(Path, sys.argv[1:])
    digits, photos = mnist.find(data), cifar10.find(data)
    if digits is None or photos is None:
        sys.exit(f"{data} does not hold the files of MNIST and CIFAR-10")
    plain, colour = mnist.read(digits), cifar10.read(photos)
    brighter = [(x.int() + 100).clamp(max=255).to(torch.uint8) for x in (plain.train_x, plain.test_x)]
    grey = [without_colour(x) for x in (colour.train_x, colour.test_x)]
    siblings = {
        "inverted": Images(255 - plain.train_x, plain.train_y, 255 - plain.test_x, plain.test_y),
        "bright": Images(brighter[0], plain.train_y, brighter[1], plain.test_y),
        "grey": Images(grey[0], colour.train_y, grey[1], colour.test_y),
    }
    for name, images in siblings.items():
        write(destination / name, images)
        write_user_data(destination, name, images)


if __name__ == "__main__":
    main()

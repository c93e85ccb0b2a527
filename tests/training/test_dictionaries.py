"""Several inputs at once, as a dictionary: every method takes them as it takes one tensor."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path

import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from resuming import goes_on_exactly, same
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.table import METHODS
from sncl.networks.gating.attach import gates
from sncl.networks.gating.gate import ReserveGate
from sncl.networks.mlp import MLP
from sncl.streams.transforms import Unit
from sncl.training.learner import Learner

TAKING = [name for name in METHODS if name not in ("hal", "pnn")]


class Two(MLP):
    """The MLP, with its input in two halves."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([left, right], 1))


def halves(x: Tensor) -> dict[str, Tensor]:
    return {"left": x[:, : FEATURES // 2], "right": x[:, FEATURES // 2 :]}


def learner(net: type[MLP], name: str, seed: int = 0) -> Learner:
    torch.manual_seed(0)
    return Learner(net(FEATURES, CLASSES, width=16), name, memory=20, replay=8, lr=0.05, seed=seed, device="cpu")


def feed(subject: Learner, start: int, stop: int, split: bool) -> None:
    stream = batches(12)
    for number in range(start, stop):
        x, y = stream[number]
        subject.learn(halves(x) if split else x, y)
        if subject.method.needs_boundaries and number in (5, 11):
            rows = stream[number - 5 : number + 1]
            x, y = torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])
            subject.boundary(halves(x) if split else x, y)


@pytest.mark.parametrize("name", TAKING)
def test_two_halves_are_learned_as_the_whole(name: str) -> None:
    whole, split = learner(MLP, name), learner(Two, name)
    feed(whole, 0, 12, split=False)
    feed(split, 0, 12, split=True)
    x, _ = batches(1)[0]
    assert torch.equal(whole.logits(x), split.logits(halves(x)))
    ours, theirs = whole.net.state_dict(), split.net.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    if split.memory is not None:
        assert {"x/left", "x/right", "y"} <= split.memory.fields.keys() and "x" not in split.memory.fields


@pytest.mark.parametrize("name", ["sncl", "gem", "icarl"])
def test_going_on_with_dictionaries_is_exact(name: str, tmp_path: Path) -> None:
    def go(subject: Learner, start: int, stop: int) -> None:
        feed(subject, start, stop, split=True)

    assert goes_on_exactly(lambda seed: learner(Two, name, seed), go, stop=8, end=12, folder=tmp_path)


@pytest.mark.parametrize("name", ["oewc", "gss"])
def test_gradients_of_rows_of_a_network_that_looks_at_values(name: str) -> None:
    class Looking(Two):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(left, right if bool(right.isfinite().all()) else torch.zeros_like(right))

    plain, looking = learner(Two, name), learner(Looking, name)
    for each in (plain, looking):
        feed(each, 0, 12, split=True)
    for key, value in plain.net.state_dict().items():
        torch.testing.assert_close(looking.net.state_dict()[key], value)


def test_mappings_of_other_kinds_are_taken() -> None:
    """What a tokenizer returns is no dict."""
    first, second = learner(Two, "sncl"), learner(Two, "sncl")
    for x, y in batches(3):
        first.learn(halves(x), y)
        second.learn(UserDict(halves(x)), y)
    assert same(first, second) and torch.equal(first.predict(UserDict(halves(x))), second.predict(halves(x)))


def test_transforms_are_of_images_only() -> None:
    class Captioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.images, self.words = nn.Linear(12, 8), nn.Embedding(300, 8)
            self.act, self.head = nn.ReLU(), nn.Linear(8, 3)
            self.seen: list[tuple[Tensor, Tensor]] = []

        def forward(self, images: Tensor, words: Tensor) -> Tensor:
            self.seen.append((images, words))
            hidden: Tensor = self.act(self.images(images.flatten(1)) + self.words(words).mean(1))
            logits: Tensor = self.head(hidden)
            return logits

    net = Captioned()
    subject = Learner(net, "sncl", memory=6, replay=4, device="cpu", transform=Unit())
    x = {"images": torch.randint(256, (4, 3, 2, 2), dtype=torch.uint8), "words": torch.randint(200, 300, (4, 5))}
    subject.learn(x, torch.tensor([0, 1, 2, 0]))
    images, words = net.seen[-1]
    assert torch.equal(images, x["images"] / 255) and torch.equal(words, x["words"])
    subject.predict(x)
    images, words = net.seen[-1]
    assert torch.equal(images, x["images"] / 255) and torch.equal(words, x["words"])
    assert subject.memory is not None and subject.memory.fields["x/images"].dtype == torch.uint8


def test_clear_errors() -> None:
    subject = learner(Two, "er")
    x, y = batches(1)[0]
    with pytest.raises(SnclError, match=r"'right' and y need the same number of rows"):
        subject.learn({"left": x[:, :6], "right": x[:3, 6:]}, y)
    with pytest.raises(SnclError, match="a dictionary without a tensor"):
        subject.learn({}, y)
    subject.learn(halves(x), y)
    with pytest.raises(SnclError, match=r"the inputs are 'left', but in the first batch they were 'left', 'right'"):
        subject.learn({"left": x[:, :6]}, y)
    with pytest.raises(SnclError, match=r"'right' has the shape \[rows, 6\] and the type float32.* got \[8, 5\]"):
        subject.learn({"left": x[:, :6], "right": x[:, 7:]}, y)
    with pytest.raises(SnclError, match="real numbers"):
        learner(Two, "hal").learn(halves(x), y)
    tokens = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3))
    with pytest.raises(SnclError, match=r"returns logits \[rows, classes\], .* it returned \[2, 5, 3\]"):
        Learner(tokens, "er", device="cpu").learn(torch.zeros(2, 5).long(), torch.zeros(2).long())
    words = Learner(nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 3)), "er", device="cpu")
    words.learn(torch.zeros(2, 5).long(), torch.zeros(2).long())
    with pytest.raises(SnclError, match=r"got \[2, 4\] and int64; pad sequences to one length"):
        words.learn(torch.zeros(2, 4).long(), torch.zeros(2).long())
    with pytest.raises(SnclError, match=r"Two cannot take inputs of 'left' of the shape \[6\] .*'up' of the shape"):
        learner(Two, "er").learn({"left": x[:, :6], "up": x[:, 6:]}, y)


def test_outputs_grow_beside_a_gated_head() -> None:
    """Where the gate stands on what the head reads, new outputs read the gated value too."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(9, 4), nn.Linear(4, 2)

        def forward(self, words: Tensor) -> Tensor:
            logits: Tensor = self.head(self.words(words))
            return logits

    torch.manual_seed(0)
    subject = Learner(Words(), "sncl", memory=8, replay=4, device="cpu", grow=True)
    x = {"words": torch.randint(9, (4, 5))}
    for y in ([0, 1, 1, 0], [2, 2, 3, 0], [3, 3, 2, 1]):
        subject.learn(x, torch.tensor(y))
    ((name, gate),) = gates(subject.net.body)
    assert isinstance(gate, ReserveGate)
    assert name == "head:input" and subject.outputs == 4
    with torch.no_grad():
        gate.opened.fill_(False)
    bias = torch.cat([part.bias for part in subject.net.body.head.parts])[:4]
    assert torch.equal(subject.logits(x), bias.expand(4, 4))

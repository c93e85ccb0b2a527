"""A learner as people expect it: loaders, probabilities, scores, single samples and a line that says what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from resuming import same
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sncl import Learner, SnclError
from sncl.networks.mlp import MLP


def make(method: str = "sncl", *layers: nn.Module) -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), *layers, nn.ReLU(), nn.Linear(16, 4))
    return Learner(net, method, memory=20, replay=8, lr=0.1, device="cpu")


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 6, generator=numbers), torch.randint(4, (8,), generator=numbers)) for _ in range(count)]


# --- fit


def test_fit_is_learn_in_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    ours, by_hand = make(), make()
    x, y = (torch.cat(parts) for parts in zip(*batches(5), strict=True))
    losses: list[list[float]] = []
    assert ours.fit(DataLoader(TensorDataset(x, y), batch_size=16), epochs=2, progress=True) is ours
    for _ in range(2):
        pairs = zip(x.split(16), y.split(16), strict=True)
        losses.append([float(sum(by_hand.learn(*pair).values())) for pair in pairs])
    assert same(ours, by_hand) and ours.steps == 6
    expected = [f"epoch {n + 1} of 2: 3 batches, loss {sum(each) / 3:.4f}" for n, each in enumerate(losses)]
    assert capsys.readouterr().out.splitlines() == expected


def test_fit_takes_whatever_yields_batches_and_says_where_a_task_ends() -> None:
    class Worded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(10, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4))

        def forward(self, input_ids: Tensor) -> Tensor:
            logits: Tensor = self.head(self.words(input_ids).mean(1))
            return logits

    def numbered() -> Iterator[tuple[Any, Any]]:
        yield from ((x.numpy(), y.tolist()) for x, y in batches(3))

    ours, by_hand = make("icarl"), make("icarl")
    ours.fit(numbered(), boundary=True)
    for x, y in batches(3):
        by_hand.learn(x, y)
    by_hand.boundary(torch.cat([x for x, _ in batches(3)]), torch.cat([y for _, y in batches(3)]))
    assert same(ours, by_hand) and ours.tasks == 1
    assert make("er").fit(batches(2), boundary=True).tasks == 1

    torch.manual_seed(0)
    tokens = {"input_ids": torch.randint(10, (8, 5)), "labels": torch.randint(4, (8,))}
    reader = Learner(Worded(), "er", memory=10, device="cpu").fit([tokens] * 3)
    assert reader.steps == 3 and tokens.keys() == {"input_ids", "labels"}


def test_fit_takes_weights() -> None:
    ours, by_hand, plain = make("er"), make("er"), make("er")
    weighted = [(x, y, torch.linspace(0, 3, 8)) for x, y in batches(4)]
    ours.fit(weighted)
    plain.fit(batches(4))
    for each in weighted:
        by_hand.learn(*each)
    assert same(ours, by_hand)
    assert not torch.equal(ours.logits(weighted[0][0]), plain.logits(weighted[0][0]))


@pytest.mark.parametrize(
    ("loader", "epochs", "said"),
    [
        (iter(batches(2)), 2, "`loader` can be read only once .*and `epochs` is 2; give a list"),
        ([], 1, "`loader` has no batch"),
        (batches(1), 0, "`epochs` is at least 1, not 0"),
        (batches(1), "3", "`epochs` is at least 1, not '3'"),
        (5, 1, "`loader` yields batches .* not a int"),
        ([torch.zeros(8, 6)], 1, "a batch is .* not a Tensor"),
        ([(torch.zeros(8, 6),)], 1, "a batch is .* not a tuple of 1"),
    ],
)
def test_a_loader_that_cannot_be_meant(loader: Any, epochs: Any, said: str) -> None:
    subject = make()
    with pytest.raises(SnclError, match=said):
        subject.fit(loader, epochs)
    assert subject.steps == 0


# --- predictions


def test_probabilities_and_scores_follow_from_logits() -> None:
    subject, (x, y) = make(), batches(1)[0]
    subject.fit(batches(5))
    logits = subject.logits(x)
    assert torch.equal(subject.predict_proba(x), logits.softmax(1))
    assert subject.score(x, y) == int((logits.argmax(1) == y).sum()) / 8
    assert subject.score(x.numpy(), y.tolist()) == subject.snapshot().score(x, y) == subject.score(x, y)
    with pytest.raises(SnclError, match="the same number of rows"):
        subject.score(x, y[:3])
    tasks = Learner(MLP(6, 4, width=8), "pnn", device="cpu")
    tasks.learn(x, y)
    assert 0 <= tasks.score(x, y, task=0) <= 1
    with pytest.raises(SnclError, match="only when told the task"):
        tasks.predict_proba(x)


@pytest.mark.parametrize("layer", [[], [nn.BatchNorm1d(16)]], ids=["plain", "norm"])
def test_single_samples_are_batches_of_one(layer: list[nn.Module]) -> None:
    ours, by_hand = make("sncl", *layer), make("sncl", *(type(each)(16) for each in layer))  # type: ignore[call-arg]
    x, y = batches(1)[0]
    for row, label in zip(x, y, strict=True):
        first, second = ours.learn_one(row.numpy(), int(label)), by_hand.learn(row[None], label[None])
        assert {name: float(loss) for name, loss in first.items()} == {
            name: float(each) for name, each in second.items()
        }
    assert same(ours, by_hand)
    for given in (x[0], x[0].tolist(), x[0].numpy()):
        assert ours.predict_one(given) == int(ours.predict(x[:1])[0]) == ours.snapshot().predict_one(given)
        assert ours.predict_proba_one(given) == dict(enumerate(ours.predict_proba(x[:1])[0].tolist()))
    assert ours.predict_one(np.asarray(x[0])) in range(4)


def test_a_norm_without_running_statistics_says_what_it_needs() -> None:
    subject = make("sgd", nn.BatchNorm1d(16, track_running_stats=False))
    subject.learn(*batches(1)[0])
    with pytest.raises(SnclError, match="Sequential cannot predict these samples: Expected more than 1 value"):
        subject.predict_one(torch.zeros(6))
    with pytest.raises(SnclError, match="cannot learn from a single sample; give batches of two"):
        subject.learn_one(torch.zeros(6), 1)


# --- in a line


def test_a_learner_and_its_memory_say_what_they_are() -> None:
    subject = make()
    assert repr(subject) == "Learner(Sequential with 180 parameters, SNCL, memory 0 of 20, 0 steps, cpu)"
    assert repr(subject.memory) == "Memory(0 of 20 samples, LossAwareReservoir; cpu)"
    subject.learn(*batches(1)[0])
    subject.boundary()
    opened = int(subject.net.body[1].gate.opened.sum()) if hasattr(subject.net.body[1], "gate") else None  # type: ignore
    said = repr(subject)
    assert said.startswith("Learner(Sequential with 196 parameters, SNCL, memory 8 of 20, 1 step, 1 task ended, ")
    assert said.endswith(" of 16 neurons open, 4 outputs, cpu)") and (opened is None or f" {opened} of 16" in said)
    each = 6 * 4 + 8 + 4 * 4 + 4 + 16 * 2
    fields = "features/1, logits, loss, x, y"
    assert repr(subject.memory) == f"Memory(8 of 20 samples, LossAwareReservoir, {each} bytes each: {fields}; cpu)"
    assert "memory" not in repr(make("sgd"))

"""Representations are what the classifier reads, and the embedding of them follows from the seed."""

from dataclasses import replace

import pytest
import torch

from sncl.analysis.embedding import drift, embed, representations, separation, tsne
from sncl.errors import SnclError
from sncl.runs.loading import Trained


def test_representations_are_what_the_classifier_reads(gated: Trained) -> None:
    learner, (x, _) = gated.learner, gated.stream.test(1)
    features = representations(learner, x)
    assert features.shape == (len(x), 100)
    with torch.no_grad():
        assert torch.allclose(learner.net.body.head(features), learner.logits(x), atol=1e-5)
    hooks = [len(module._forward_pre_hooks) for module in learner.net.modules()]
    assert torch.equal(features, representations(learner, x))
    assert hooks == [len(module._forward_pre_hooks) for module in learner.net.modules()]  # taps do not add up


def test_drift_and_separation_by_hand() -> None:
    then = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert drift(then, then) == 0
    assert drift(then, then + torch.tensor([0.0, 3.0])) == pytest.approx(3.0)
    apart = torch.tensor([[0.0], [0.0], [9.0], [9.0]])
    assert separation(apart, torch.tensor([0, 0, 1, 1])) == 1
    assert separation(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 0, 1])) == pytest.approx(
        ((4 - 1) / 4 + (3 - 1) / 3 + 0) / 3
    )
    assert separation(apart, torch.zeros(4)) is None


def test_of_a_run(gated: Trained, plain: Trained) -> None:
    found, again, other = (tsne(gated, task=2, rows=60, seed=seed) for seed in (0, 0, 1))
    assert found == again
    assert found["after_stream"]["points"] != other["after_stream"]["points"]
    stream = found["after_stream"]
    assert len(stream["points"]) == len(stream["labels"]) == found["test_rows"] == 60
    assert stream["tasks"] == [1] * 20 + [2] * 20 + [3] * 20
    assert [label // 2 + 1 for label in stream["labels"]] == stream["tasks"]  # two classes a task
    one = found["one_task"]
    assert len(one["now"]) == len(one["then"]) == len(one["labels"]) == 60
    assert set(one["labels"]) == {2, 3}
    assert found["measures"]["drift"] > 0
    last = tsne(gated, task=3, rows=60)
    assert last["measures"]["drift"] == 0  # nothing came after it
    assert "one_task" not in tsne(plain, rows=60)
    assert tsne(plain, task=1, rows=60)["one_task"] is None


def test_what_cannot_be_embedded(plain: Trained) -> None:
    with pytest.raises(SnclError, match="tasks 1 to 3, not 4"):
        tsne(plain, task=4)
    with pytest.raises(SnclError, match="all tasks at once"):
        tsne(replace(plain, stream=plain.stream.joint()), task=2)
    with pytest.raises(SnclError, match="at least 5 samples"):
        embed(torch.randn(3, 2), seed=0)
    with pytest.raises(SnclError, match="the same"):
        embed(torch.ones(30, 2), seed=0)

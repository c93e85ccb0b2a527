"""Recall by class, the confusion matrix, balanced accuracy and the majority baseline, beside scikit-learn's."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

from sncl.evaluation.by_class import ByClass, confusion_counts, joined_counts


@pytest.mark.parametrize("classes", [2, 5, 100, 150])
def test_all_of_it_is_scikit_learns(classes: int) -> None:
    numbers = np.random.default_rng(classes)
    y = numbers.choice(
        classes - 1, 3000, p=(share := numbers.random(classes - 1) ** 4) / share.sum()
    )  # none of the last
    answers = np.where(numbers.random(3000) < 0.6, y, numbers.integers(classes, size=3000))
    counts = confusion_counts(torch.from_numpy(y), torch.from_numpy(answers))
    parts = [slice(0, 1), slice(1, 100), slice(100, 3000)]
    each = [confusion_counts(torch.from_numpy(y[part]), torch.from_numpy(answers[part])) for part in parts]
    assert torch.equal(joined_counts(each), counts)
    found = ByClass.counted(counts, classes)
    labels, there = list(range(classes)), np.unique(y)
    assert found.samples == np.bincount(y, minlength=classes).tolist()
    recalls = recall_score(y, answers, labels=there, average=None)
    np.testing.assert_allclose([found.recall[label] for label in there], 100 * recalls, rtol=1e-12)
    assert [label for label in labels if found.recall[label] is None] == sorted(set(labels) - set(there.tolist()))
    occurring = np.isin(answers, there)  # scikit-learn warns of answers that no sample has
    expected = balanced_accuracy_score(y[occurring], answers[occurring]) if occurring.all() else recalls.mean()
    assert found.balanced_accuracy == pytest.approx(100 * expected)
    assert found.majority == pytest.approx(100 * accuracy_score(y, np.full(3000, np.bincount(y).argmax())))
    assert found.pooled_accuracy == pytest.approx(100 * accuracy_score(y, answers))
    if classes <= 100:
        assert found.confusion == confusion_matrix(y, answers, labels=labels).tolist()
    else:
        assert found.confusion is None
    found.check()


def test_balanced_accuracy_is_scikit_learns() -> None:
    y, answers = np.array([0] * 8 + [2] * 2), np.array([0] * 6 + [2] * 2 + [0, 2])
    found = ByClass.counted(confusion_counts(torch.from_numpy(y), torch.from_numpy(answers)), 3)
    assert found.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(y, answers)) == 62.5


def test_a_thousand_classes_stay_small() -> None:
    y = torch.arange(1000).repeat_interleave(50)
    answers = torch.randint(1000, (50_000,), generator=torch.Generator().manual_seed(0))
    counts = confusion_counts(y, answers)
    assert counts.numel() * 8 < 2e6  # in a checkpoint: no more than the test samples
    assert len(json.dumps(asdict(ByClass.counted(counts, 1000)))) < 2e4


@pytest.mark.parametrize(
    ("samples", "imbalanced"), [([50, 50], False), ([66, 34], False), ([68, 34], True), ([980, 1135, 892], False)]
)
def test_what_counts_as_imbalanced(samples: list[int], imbalanced: bool) -> None:
    assert ByClass.of(samples, samples, None).is_imbalanced == imbalanced
    assert ByClass.of([*samples, 0], [*samples, 0], None).is_imbalanced == imbalanced  # a class that is not tested


def test_always_answering_the_most_frequent_class_is_not_below_itself() -> None:
    assert not ByClass.of([85, 15], [85, 0], None).is_below_majority
    assert ByClass.of([85, 15], [84, 0], None).is_below_majority
    assert not ByClass.of([85, 15], [70, 15], None).is_below_majority

"""The library names arguments in backquotes; the command line prints options."""

from pathlib import Path

import pytest
import torch
from command_line import Sncl

from sncl.cli.words import as_options, option_names, setting_names
from sncl.errors import SnclError
from sncl.training.learner import Learner


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        ("`memory` is at least 1 sample, not 0", "--memory is at least 1 sample, not 0"),
        ('no CUDA device was found; use `device="cpu"`', "no CUDA device was found; use --device cpu"),
        ("`memory=300` is more than the 100 samples", "--memory 300 is more than the 100 samples"),
        ("use a smaller `lr` or `alpha=0.1`", "use a smaller --set lr=... or --set alpha=0.1"),
        ("`gates=off` has no `sparsity`", "--set gates=off has no --set sparsity=..."),
        ("`settings` takes lr, ema", "--set takes lr, ema"),
        ("`split` is like 5x2", "--split is like 5x2"),
        ("give another `classes_per_task`", "give another --classes-per-task"),
        ("made without `keep_tasks=True`", "made without --keep-tasks"),
        ("see `sncl list` and `Learner.predict`", "see sncl list and Learner.predict"),
        ("nothing to translate", "nothing to translate"),
    ],
)
def test_arguments_become_options(said: str, printed: str) -> None:
    assert as_options(said) == printed


def test_a_missing_gpu_is_told_to_each_in_their_words(sncl: Sncl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SnclError) as raised:
        Learner(torch.nn.Linear(2, 2), "er", memory=3, device="cuda")
    assert str(raised.value) == 'no CUDA device was found here; use `device="cpu"`'
    done = sncl(*TRAIN, "--device", "cuda")
    assert (done.code, done.err) == (2, "error: no CUDA device was found here; use --device cpu\n")


def test_arguments_that_messages_name_are_options() -> None:
    named = "memory seed seeds epochs tasks split validation device precision engine threads out data cut target domain"
    assert {*named.split(), "size", "storage", "search", "settings"} <= option_names()
    assert {"lr", "ema", "batch_size", "alpha", "admission"} <= setting_names() - option_names()


TRAIN = ["train", "--stream", "seq-digits", "--method", "er"]
SEEDS = "error: give either --seed or --seeds, not both\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([*TRAIN, "--memory", "0"], "error: --memory is at least 1 sample, not 0\n"),
        ([*TRAIN, "--epochs", "0"], "error: --epochs is at least 1, not 0\n"),
        ([*TRAIN, "--seed", "1", "--seeds", "2"], SEEDS),
        ([*TRAIN, "--seeds", "0"], "error: --seeds is at least 1, not 0\n"),
        ([*TRAIN, "--threads", "0"], "error: --threads is at least 1, not 0\n"),
        ([*TRAIN, "--memory", "9999"], "error: --memory 9999 is more than the 1437 samples seq-digits has\n"),
        ([*TRAIN, "--set", "lr=fast"], "error: --set lr= takes a value like 0.1, not 'fast'\n"),
        ([*TRAIN, "--set", "lr=0"], "error: lr is a positive number, not 0.0\n"),
        (
            [*TRAIN, "--set", "nosuch=1"],
            "error: there is no setting 'nosuch' here; --set takes ace, batch_size, class_weight, clip, ema, lr, "
            "lr_drop, lr_drop_part, momentum, replay, split, weight_decay, width\n",
        ),
        (
            ["train", "--stream", "digits-360", "--method", "er", "--epochs", "2"],
            "error: digits-360 is seen once: --epochs can only be 1\n",
        ),
        (["reproduce", "table1", "--seeds", "0"], "error: --seeds is at least 1, not 0\n"),
        (["reproduce", "table1", "--memory", "0"], "error: --memory is at least 1 sample, not 0\n"),
        (
            ["reproduce", "ablation", "--method", "er"],
            "error: the rows of ablation are variants of sncl; --method is for table1 and table2\n",
        ),
    ],
)
def test_errors_name_options(sncl: Sncl, arguments: list[str], line: str) -> None:
    assert sncl(*arguments) == (2, "", line)


def test_a_folder_of_another_run_is_named_with_its_option(sncl: Sncl, tmp_path: Path) -> None:
    short = [*TRAIN, "--tasks", "1", "--epochs", "1", "--out", "run"]
    assert sncl(*short).code == 0
    done = sncl(*short, "--seed", "1")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: run holds another experiment; choose another --out or the settings it was made with\n"

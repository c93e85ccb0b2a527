"""Names as people type them: capitals do not matter, and others are suggested."""

import pytest
import torch
from command_line import Sncl

from sncl.errors import SnclError, nearest
from sncl.methods.table import METHODS, entry, make
from sncl.runs.plan import plan
from sncl.streams.benchmarks import STREAMS, named
from sncl.streams.build import build
from sncl.training.learner import Learner

TRAIN = ["train", "--stream", "seq-digits", "--method", "er"]
SHORT = ["--tasks", "1", "--epochs", "1", "--device", "cpu"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("der++", "derpp"), ("DER++", "derpp"), ("der_pp", "derpp"), ("ewc", "oewc"), ("online-EWC", "oewc")),
        *(("a-gem", "agem"), ("agemr", "agem-r"), ("er_ace", "er-ace"), ("ERACE", "er-ace"), ("i-carl", "icarl")),
        *(
            ("snlc", "sncl"),
            ("sncll", "sncl"),
            ("finetune", "sgd"),
            ("multi-task", "joint"),
            ("experience replay", "er"),
        ),
    ],
)
def test_a_method_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(SnclError) as raised:
        entry(typed)
    assert str(raised.value) == f"there is no method {typed!r}; did you mean {meant}? `sncl list` shows all"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("permuted-mnist", "perm-mnist"), ("PermutedMNIST", "perm-mnist"), ("rotated_mnist", "rot-mnist")),
        *(("split-cifar10", "seq-cifar10"), ("cifar10", "seq-cifar10"), ("CIFAR-10", "seq-cifar10")),
        *(("tiny-imagenet", "seq-tinyimagenet"), ("mnist360", "mnist-360"), ("seq-minst", "seq-mnist")),
        ("mnist", "perm-mnist or rot-mnist or mnist-360 or seq-mnist"),
    ],
)
def test_a_stream_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(SnclError) as raised:
        named(typed)
    assert str(raised.value) == f"there is no stream {typed!r}; did you mean {meant}? `sncl list` shows all"


def test_where_nothing_is_near_all_are_named() -> None:
    with pytest.raises(SnclError, match="there is no method 'magic'; the known ones are sgd, joint,"):
        entry("magic")
    with pytest.raises(SnclError, match=r"there is no stream 'nowhere'; the known ones are seq-cifar10, .*folder:PATH"):
        named("nowhere")
    assert nearest("", METHODS) == []


@pytest.mark.parametrize("name", [*METHODS, *STREAMS])
def test_every_name_is_its_own_nearest(name: str) -> None:
    assert nearest(name.upper(), METHODS if name in METHODS else STREAMS) == [name]


def test_capitals_do_not_matter(sncl: Sncl) -> None:
    usual = plan("seq-digits", "derpp", device="cpu")
    assert plan("SEQ-Digits", "DERPP", device="cpu") == usual
    assert type(make("ER-ACE")) is type(make("er-ace"))
    assert build("Seq-Digits", tasks=1).name == build("seq-digits", tasks=1).name == "seq-digits"
    Learner(torch.nn.Linear(2, 2), "ER", memory=3)
    first = sncl(*TRAIN, *SHORT)
    again = sncl("train", "--stream", "SEQ-DIGITS", "--method", "ER", *SHORT)
    assert (first.code, again.code, again.out) == (0, 0, first.out)
    assert again.err.startswith("already finished: runs/seq-digits-er-200-seed0-")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["train", "--stream", "seq-digits", "--method", "der++"],
            "there is no method 'der++'; did you mean derpp? sncl list shows all",
        ),
        (
            [*TRAIN, "--set", "learning_rate=1"],
            "there is no setting 'learning_rate' here; did you mean lr? --set takes ace, batch_size, class_weight, "
            "clip, ema, lr, lr_drop, lr_drop_part, momentum, replay, split, weight_decay, width",
        ),
        (
            [*TRAIN, "--set", "BatchSize=8"],
            "there is no setting 'BatchSize' here; did you mean batch_size? --set takes ace, batch_size, class_weight, "
            "clip, ema, lr, lr_drop, lr_drop_part, momentum, replay, split, weight_decay, width",
        ),
        ([*TRAIN, "--set", "memory=10"], "memory is no setting; give --memory 10 by itself"),
        ([*TRAIN, "--memroy", "10"], "there is no option --memroy; did you mean --memory? --help shows all"),
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["analyze", "fischer"], "No such command 'fischer'. Did you mean 'fisher'?"),
        (
            ["reproduce", "Table1"],
            "there is no table 'Table1'; did you mean table1? the known ones are table1, table2, ablation, layers",
        ),
        (
            ["data", "fetch", "cifar-10"],
            "There is nothing to fetch for 'cifar-10'; did you mean cifar10? what can be fetched is mnist, cifar10, "
            "tiny-imagenet.",
        ),
    ],
)
def test_a_typing_error_is_one_line(sncl: Sncl, arguments: list[str], line: str) -> None:
    done = sncl(*arguments)
    assert (done.code, done.out, done.err) == (2, "", f"error: {line}\n")


def test_a_setting_of_a_method_is_suggested() -> None:
    with pytest.raises(SnclError, match=r"derpp has no setting 'logit'; did you mean logits\? it takes logits, labels"):
        make("derpp", {"logit": 1.0})

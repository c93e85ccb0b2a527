"""Arguments of the wrong kind: one line says what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sncl import Learner, SnclError
from sncl.methods.er import ER
from sncl.streams.transforms import Unit


def make(net: Any = None, **options: Any) -> Learner:
    return Learner(
        nn.Sequential(nn.Linear(6, 4)) if net is None else net, **{"method": "er", "device": "cpu"} | options
    )


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a class of networks": ({"net": nn.Sequential}, "`net` is a network, not the class Sequential: make one"),
    "no network": ({"net": [1, 2]}, "`net` is an nn.Module that returns logits, not a list"),
    "no parameters": ({"net": nn.ReLU()}, "has no parameters"),
    "a class of methods": ({"method": ER}, "`method` is a method or the name of one, not the class ER: make one of it"),
    "no method": ({"method": 3}, '`method` is the name of a method such as "sncl", or a Method, not 3'),
    "no name of a method": ({"method": "der++"}, "there is no method 'der\\+\\+'"),
    "a text for a step size": ({"lr": "0.1"}, "`lr` is a number, not '0.1'"),
    "no step size": ({"lr": None}, "`lr` is a number, not None"),
    "a step size of yes": ({"lr": True}, "`lr` is a number, not True"),
    "an endless step": ({"lr": float("inf")}, "`lr` is a positive number, not inf"),
    "a text for a memory": ({"memory": "200"}, "`memory` is a whole number of samples, not '200'"),
    "half a sample": ({"memory": 200.5}, "`memory` is a whole number of samples, not 200.5"),
    "an empty memory": ({"memory": 0}, "`memory` is at least 1 sample, not 0"),
    "a text for replay": ({"replay": "8"}, "`replay` is a whole number of samples, not '8'"),
    "nothing replayed": ({"replay": 0}, "`replay` is at least 1 sample, not 0"),
    "an average of too much": ({"ema": 2}, "`ema` is 0 .off. or the part .* below 1, not 2"),
    "an average in words": ({"ema": "high"}, "`ema` is a number, not 'high'"),
    "a clip in words": ({"clip": "2"}, "`clip` is a number, not '2'"),
    "a seed in words": ({"seed": "x"}, "`seed` is a whole number, not 'x'"),
    "a broken seed": ({"seed": 0.5}, "`seed` is a whole number, not 0.5"),
    "a class of transforms": ({"transform": Unit}, "`transform` is a transform, not the class Unit"),
    "no transform": ({"transform": lambda x: x}, "`transform` is a .*Transform, not a function"),
    "a made optimiser": (
        {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)},
        "`optimizer` makes an optimiser from parameter groups, .* not a SGD",
    ),
    "an optimiser in words": ({"optimizer": "adam"}, "`optimizer` makes an optimiser .* not 'adam'"),
    "growth in words": ({"grow": "yes"}, "`grow` is True or False, not 'yes'"),
    "no device": ({"device": None}, "there is no device None; use auto, cpu or cuda"),
    "an unknown device": ({"device": "abacus"}, "there is no device 'abacus'"),
    "an unknown engine": ({"engine": 3}, "the engine is auto, eager or graph, not 3"),
    "an unknown precision": ({"precision": "half"}, "the precision is auto, float32 or bfloat16, not 'half'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_says_what_is_allowed(name: str) -> None:
    given, said = WRONG[name]
    with pytest.raises(SnclError, match=said) as refused:
        make(**given)
    assert "\n" not in str(refused.value)
    assert "--" not in str(refused.value)  # options are words of the command line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_library_does_not_speak_of_options() -> None:
    with pytest.raises(SnclError, match=r'^no CUDA device was found here; use `device="cpu"`$'):
        make(device="cuda")


def test_numbers_of_numpy_are_numbers() -> None:
    subject = make(memory=np.int64(5), lr=np.float32(0.1), seed=np.int32(3), ema=np.float64(0.5))
    subject.learn(torch.zeros(8, 6), torch.zeros(8).long())
    assert subject.memory is not None and subject.memory.capacity == 5

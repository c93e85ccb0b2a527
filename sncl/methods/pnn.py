"""Progressive neural networks: a new column for every task, which reads those that came before it.

Reference: Rusu et al., *Progressive Neural Networks*, 2016.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_loss
from sncl.networks.progressive import Progressive
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, Inputs, inputs


class PNN(Method):
    """loss = CE(now) of the newest column, the only one that learns: what was learned before cannot be forgotten.

    The first column is the network given, a :class:`sncl.networks.mlp.MLP` or a
    :class:`sncl.networks.resnet.ResNet18`. A new one stands ready from each boundary on, and its step costs a pass
    through all of them. A task is answered by its own column, or by the newest while it has none.

    Departures: every column has the outputs of all classes, and there is no end to the columns (the published runs of
    2020 stop at five). ResNet18 is not in the paper; stages stand for its layers, as in those runs.
    """

    takes_weights = True
    needs_boundaries = True
    needs_task_at_test = True
    bf16_safe = False  # on seq-cifar10 its loss became nan early in the second task, with all of three seeds
    expands = True
    grows = False  # a frozen column has the outputs it was learned with

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        return Tapped(Progressive(net))

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        return [{"params": list(_columns(net).newest.parameters()), "lr": lr}]

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        return Outcome({"labels": label_loss(net(inputs(now)).logits, now)})

    def expand(self, net: Tapped) -> None:
        _columns(net).grow()

    def predict(self, net: Tapped, x: Inputs, task: int | None = None) -> Tensor:
        return _columns(net)(x, task)  # type: ignore[no-any-return]


def _columns(net: Tapped) -> Progressive:
    assert isinstance(net.body, Progressive)  # prepared here
    return net.body

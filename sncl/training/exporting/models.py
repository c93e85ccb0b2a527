"""What a learner predicts with, from raw samples to logits: as trained, without its closed neurons, and dense.

All of them are copies on the host, so that a learner may go on learning while a file is made.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.networks.pruning.prune import Pruned, pruned
from sncl.networks.pruning.scales import without_gates
from sncl.networks.taps import Tapped
from sncl.streams.scale import FixedScale
from sncl.streams.standardisation import RunningScale
from sncl.streams.transforms import Transform
from sncl.training.inputs import called

if TYPE_CHECKING:
    from sncl.training.learner import Learner

EXAMPLE_SIZE = 3  # a number of samples that nothing else in a network has


class RawPredictor(nn.Module):
    """Raw samples to logits: standardised where a ``scale`` is given, transformed, and through the network.

    ``outputs`` are those that count, in their order; None: all.
    """

    def __init__(
        self,
        transform: Transform,
        net: nn.Module,
        scale: FixedScale | None = None,
        outputs: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.transform, self.net, self.scale, self.outputs = transform, net, scale, outputs

    def forward(self, samples: Tensor) -> Tensor:
        x = samples if self.scale is None else self.scale(samples)
        logits: Tensor = self.net(self.transform.eval(x))
        return logits if self.outputs is None else logits.index_select(1, self.outputs)


class _MethodPredictor(nn.Module):
    """A network that predicts as its method does. The method is no submodule: of its tensors only those used count."""

    def __init__(self, method: Method, net: Tapped) -> None:
        super().__init__()
        self.net = net
        self._predict = method.predict

    def forward(self, x: Tensor) -> Tensor:
        return self._predict(self.net, x)


@dataclass(frozen=True)
class Models:
    """What a learner predicts with: as it was trained, and with closed neurons removed.

    ``dense`` has all neurons and no gates, as if there had never been any: it predicts something else, at the cost that
    a network without sparsity has. Without gates it is ``small``.
    """

    trained: RawPredictor
    small: RawPredictor
    dense: RawPredictor
    pruned: Pruned


def make_models(learner: Learner, name: str, outputs: Tensor | None = None) -> Models:
    """The models of a learner, with the standardisation of the run it comes from inside.

    ``name`` is what an error calls the method.
    """
    scale = None if learner.preprocessing is None else learner.preprocessing.scale
    with learner.predicting():
        check_exportable(learner, name)
        net, method = deepcopy((learner.net, learner.method))
        transform, example = _on_host(learner.transform), learner.signature.example["x"].cpu()
    net, method = net.cpu().eval(), method.cpu()
    # The transform keeps the constants it has made once; making them here keeps them out of a trace.
    seen = transform.eval(example.repeat(EXAMPLE_SIZE, *[1] * (example.dim() - 1))[:EXAMPLE_SIZE])
    trained: nn.Module = _MethodPredictor(method, net)
    if type(method).predict is Method.predict:
        found = pruned(net, seen)
        small: nn.Module = found.net
    else:  # it reads more of its network than the logits, and has no gates
        found, small = Pruned(trained, {}, 0.0), trained
    whole = without_gates(net.body, seen) if found.layers else small

    def predictor(each: nn.Module) -> RawPredictor:
        return RawPredictor(transform, each, scale, outputs).eval()

    smaller = predictor(small)
    return Models(predictor(trained), smaller, smaller if whole is small else predictor(whole), found)


def check_exportable(learner: Learner, name: str) -> None:
    """Refuse what no file can hold."""
    if learner.method.needs_task_at_test:
        raise SnclError(f"{name} predicts only when told the task, and an exported model takes nothing but samples")
    names = list(learner.signature.example)
    if names != ["x"]:
        raise SnclError(
            f"an exported model takes one tensor, and this network takes {', '.join(map(called, names))}; export "
            "learner.net.body with torch.export"
        )


def _on_host(transform: Transform) -> Transform:
    """A copy that stays as it is now."""
    twin = deepcopy(transform)
    if isinstance(twin, RunningScale):
        for name, value in vars(twin).items():
            if isinstance(value, Tensor):
                setattr(twin, name, value.cpu())
    return twin


def input_name(example: Tensor) -> str:
    """What the input of a model is called in its file."""
    return "images" if example.dim() == 4 else "rows"


def raw_zeros(learner: Learner) -> Tensor:
    """Samples of nothing in the form that a file takes: before they are standardised, in double precision."""
    x = torch.zeros_like(learner.signature.example["x"], device="cpu")
    x = x[:1].repeat(EXAMPLE_SIZE, *[1] * (x.dim() - 1))
    standardised = learner.preprocessing is not None and learner.preprocessing.scale is not None
    return x.double() if standardised and x.dim() == 2 else x

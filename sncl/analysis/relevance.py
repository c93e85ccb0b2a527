r"""How relevant neurons are: what the loss would lose without them, to second order.

Without the response h of a neuron, behind its gate, to one sample at one position, the loss L rises by about
h^2/2 d^2L/dh^2, and Gauss-Newton takes (dL/dh)^2 for the second derivative. The relevance of a neuron is twice that,

    \rho = E[\sum_p (h_p dL/dh_p)^2],

summed over the positions p of its map, if it has one, with the mean over samples. L is the cross-entropy of a sample's
label, whatever the layer, so neurons of different layers can be compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad

from sncl.methods.terms import label_losses
from sncl.networks.gating.attach import gates
from sncl.networks.gating.gate import Gate
from sncl.streams.transforms import eval_input
from sncl.tensors.fields import Fields, inputs, pieces
from sncl.training.learner import Learner

SAMPLES_AT_ONCE = 100


class _Ones:
    """A forward hook that multiplies what a gate returns by ones, and keeps them: dL/d1 is h dL/dh."""

    def __init__(self, name: str, kept: list[tuple[str, Tensor]]) -> None:
        self.name, self.kept = name, kept

    def __call__(self, gate: Gate, given: Any, h: Tensor) -> Tensor:
        ones = torch.ones_like(h, requires_grad=True)
        self.kept.append((self.name, ones))
        return h * ones


def relevance(learner: Learner, samples: Fields) -> Fields:
    """The relevance of every gated neuron of the network that predicts, by layer: float64 [channels].

    ``samples`` are inputs and labels ``y`` as the memory keeps them. In evaluation they do not depend on each other, so
    the gradient of the summed loss is that of each sample.
    """
    net, y = learner.net, samples["y"]
    places = dict(gates(net.body))
    found = {name: torch.zeros(gate.channels, dtype=torch.float64, device=y.device) for name, gate in places.items()}
    kept: list[tuple[str, Tensor]] = []
    handles = [gate.register_forward_hook(_Ones(name, kept)) for name, gate in places.items()]
    try:
        with learner.predicting(), torch.enable_grad():
            for x, labels in zip(pieces(inputs(samples), SAMPLES_AT_ONCE), y.split(SAMPLES_AT_ONCE), strict=True):
                kept.clear()
                loss = label_losses(net(eval_input(learner.transform, x)).logits, labels).sum()
                slopes = grad(loss, [ones for _, ones in kept], materialize_grads=True)
                for (name, _), slope in zip(kept, slopes, strict=True):
                    found[name] += slope.double().square().movedim(places[name].axis, -1).flatten(0, -2).sum(0)
    finally:
        for handle in handles:
            handle.remove()
    return {name: total / len(y) for name, total in found.items()}

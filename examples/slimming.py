"""Network slimming as a policy of SNCL's gates: a control for neurons in reserve, and how an own policy is written.

    python examples/slimming.py train --stream perm-mnist --method sncl --memory 200 --set gates=slim

takes what ``sncl`` takes. All neurons are open at first, and ``price`` times the sum of the scales is a loss. After
``fill`` thousand samples those that weigh least are closed, a fraction ``sparsity`` of all; what is left of the stream
trains the others. A neuron weighs the product of its gate's mean and the scale of its BatchNorm, or the norm of its
incoming weights where there is none.

Reference: Liu et al., *Learning Efficient Convolutional Networks through Network Slimming*, ICCV 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sncl.cli import main
from sncl.methods.sncl_parts import GATINGS
from sncl.methods.table import METHODS
from sncl.networks.gating.gate import ReserveGate
from sncl.networks.gating.policies import Gating
from sncl.tensors.fields import Fields, Inputs

MOST_CLOSED = 0.9  # of one layer


class Slimming(Gating):
    """See above; ``layers`` are those that carry gates."""

    gates: tuple[ReserveGate, ...]

    def __init__(self, sparsity: float, fill: float, price: float, layers: tuple[str, ...] | None = None) -> None:
        super().__init__(layers)
        self.sparsity, self.fill, self.price = sparsity, fill, price
        self.weights: tuple[Tensor, ...] = ()  # of each gate, the scales or incoming weights of its neurons

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> ReserveGate:
        return ReserveGate(channels, axis, generator)

    def attach(self, net: nn.Module, example: Inputs, generator: torch.Generator) -> None:
        super().attach(net, example, generator)
        found, last = [], torch.ones(0)
        for module in net.modules():
            if isinstance(module, ReserveGate):
                found.append(last)
            elif isinstance(weight := getattr(module, "weight", None), Tensor):
                last = weight
        self.weights = tuple(found)

    def losses(self) -> Fields:
        return {"sparsity": self.price * torch.cat([gate.mu for gate in self.gates]).abs().sum()}

    @torch.no_grad()
    def after_update(self, samples: int) -> None:
        before = self.seen.clone()
        super().after_update(samples)
        now = (before < 1000 * self.fill) & (self.seen >= 1000 * self.fill)
        weights = zip(self.gates, self.weights, strict=True)
        each = [gate.mu.abs() * w.flatten(1).norm(dim=1) if w.dim() > 1 else (gate.mu * w).abs() for gate, w in weights]
        kept = [torch.where(score >= score.quantile(MOST_CLOSED), torch.inf, score) for score in each]
        limit = torch.cat(kept).sort().values[int(self.sparsity * sum(map(len, kept))) - 1]
        for gate, score in zip(self.gates, kept, strict=True):
            gate.opened.logical_and_(~now | (score > limit))


GATINGS["slim"] = Slimming
METHODS["sncl"].choices["gates"]["slim"] = {"sparsity": 0.3, "fill": 450.0, "price": 1e-5, "layers": "auto"}

if __name__ == "__main__":
    main()

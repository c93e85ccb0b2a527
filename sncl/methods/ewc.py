r"""Online EWC: weights that mattered for past tasks are held near their old values by a quadratic penalty.

    L = CE(now) + strength * sum_i F_i (theta_i - theta*_i)^2

and when a task ends, with the mean over its samples,

    F <- decay * F + mean_n p(y_n | x_n) (d log p(y_n | x_n) / d theta)^2,    theta* <- theta

References: Kirkpatrick et al., *Overcoming catastrophic forgetting in neural networks*, PNAS 2017; Schwarz et al.,
*Progress & Compress*, ICML 2018, for the running sum.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sncl.methods.gradients import carried, per_sample_gradients, trained, weight_vector
from sncl.methods.method import Growth, Method, Outcome, TaskEnd
from sncl.methods.terms import label_loss, label_losses
from sncl.networks.taps import Tapped, evaluating
from sncl.tensors.fields import Fields, Inputs, inputs, pieces

CHUNK = 2**25  # numbers in the per-sample gradients that exist at a time: 128 MB
CHUNK_ON_GPU = 2**28  # 1 GB


class OEWC(Method):
    """``strength`` weighs the penalty (0: plain SGD, bit for bit), ``decay`` is what a task leaves of the earlier ones.

    As in the code behind the published numbers and not in the papers: no factor 1/2, and the observed label's gradient
    weighted by its probability, where the Fisher information has the expectation over all labels. Where this differs
    from that code: the network is in evaluation mode while the Fisher information is taken, so that a sample's gradient
    is its own under BatchNorm too, and the mean is over the samples that are there. No weight is held more strongly
    than gradient descent can follow (strength * F is at most 1 / (2 lr)): from twice that on the penalty would diverge.
    """

    takes_weights = True
    needs_boundaries = True
    revisits = True

    def __init__(self, strength: float, decay: float = 1.0) -> None:
        super().__init__()
        self.strength = strength
        self.decay = decay
        self.largest_fisher = math.inf  # that counts
        self.fisher: Tensor  # [parameters]
        self.anchor: Tensor  # [parameters]

    def bind(self, lr: float) -> None:
        self.largest_fisher = 1 / (2 * lr * self.strength) if self.strength else math.inf

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        weights = weight_vector(net).detach()
        self.register_buffer("fisher", torch.zeros_like(weights))
        self.register_buffer("anchor", weights.clone())
        return Tapped(net)

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        away = weight_vector(net) - self.anchor
        return Outcome(
            {
                "labels": label_loss(net(inputs(now)).logits, now),
                "penalty": self.strength * (self.fisher.clamp(max=self.largest_fisher) * away.square()).sum(),
            }
        )

    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields | None:
        chunk = max(1, (CHUNK_ON_GPU if self.fisher.is_cuda else CHUNK) // self.fisher.numel())  # samples
        found = torch.zeros_like(self.fisher)
        for x, y in zip(pieces(inputs(end.rows), chunk), end.rows["y"].split(chunk), strict=True):
            found += squared_gradients(net, end.transform(x), y)
        self.fisher.mul_(self.decay).add_(found / len(end.rows["y"]))
        self.anchor.copy_(weight_vector(net).detach())
        return None

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        before = trained(net)
        changed = super().grow(net, growth)
        self.fisher, self.anchor = carried(self.fisher, before, net, 0.0), carried(self.anchor, before, net)
        return changed


def squared_gradients(net: Tapped, x: Inputs, y: Tensor) -> Tensor:
    """sum_n p(y_n | x_n) (d log p(y_n | x_n) / d theta)^2 in evaluation mode. [parameters]

    The gradient of a linear layer's weight for one sample is the outer product of the gradient d at its output and its
    input a. Its square is that of d^2 and a^2, and the sum over samples is one matrix product: nothing of the size of
    samples times parameters is made. A network with other parameters takes its samples' gradients one by one.
    """
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def probe(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        nothing = torch.zeros_like(output, requires_grad=True)  # its gradient is d, even if the output is overwritten
        calls.append((layer, inputs[0].detach(), nothing))
        return output + nothing

    handles = [layer.register_forward_hook(probe) for layer in net.modules() if type(layer) is nn.Linear]
    try:
        with evaluating(net), torch.enable_grad():
            each = label_losses(net(x).logits, y)  # [rows]
    finally:
        for handle in handles:
            handle.remove()
    likelihood = (-each.detach()).exp()  # p(y_n | x_n)
    covered = [id(parameter) for layer, _, _ in calls for parameter in trained(layer)]
    once = sorted(covered) == sorted(id(parameter) for parameter in trained(net))  # each in one call of one layer
    if not (once and all(a.dim() == 2 and len(a) == len(y) for _, a, _ in calls)):
        rows = per_sample_gradients(net, x, y)
        return torch.cat([likelihood @ value.flatten(1).square_() for value in rows.values()])
    squares: dict[int, Tensor] = {}
    gradients = torch.autograd.grad(each.sum(), [nothing for _, _, nothing in calls])
    for (layer, a, _), d in zip(calls, gradients, strict=True):
        weighted = likelihood[:, None] * d.square()  # [rows, outputs]
        parts = {"weight": weighted.T @ a.square(), "bias": weighted.sum(0)}
        squares |= {id(parameter): parts[name] for name, parameter in layer.named_parameters()}
    return torch.cat([squares[id(parameter)].flatten() for parameter in trained(net)])

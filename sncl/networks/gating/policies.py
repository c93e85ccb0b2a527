r"""How the gates of a network are trained: one object for each way, with the settings that way has.

The divergence pulls \lambda up; what the data say against it is how much the loss suffers from the noise. Where the two
balance, with the weight \eta of the divergence and the relevance \rho = \mu^2 E[d^2 L / d\tau^2] of a neuron,

    \lambda (1 + \lambda) = \eta / \rho,

and a neuron without which the loss would rise by about \rho / 2 is open exactly where \rho > \eta / 2. :class:`KL`
goes there by gradient descent on the loss, :class:`Natural` by natural gradient steps. :class:`Target` chooses \eta
such that a given fraction of the neurons is closed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.gating.gate import LOG_START, Gate, RatioGate, SilentGate, VarianceGate, log_ratio
from sncl.networks.gating.mask import LOG_LAMBDA_LIMIT
from sncl.tensors.fields import Fields, Inputs

STEP = 0.02  # the longest way of log lambda in one training step
HIGHEST_LOG_LAMBDA = 1.0  # of a step: closed for certain, and not yet deafening
SLOPE_DECAY = 0.99
RELEVANCE_DECAY = 0.999
ADVANTAGE = 30.0  # of an open neuron over a closed one, in relevance, when a target chooses between them
STARTS = {"open": LOG_START, "closed": 0.3}


class Gating(nn.Module, ABC):
    """How gates are made and trained. ``layers`` names the layers that carry gates; None finds them."""

    seen: Tensor  # []: samples learned from

    def __init__(self, layers: tuple[str, ...] | None = None) -> None:
        super().__init__()
        self.layers = layers
        self.gates: tuple[Gate, ...] = ()  # of the network, which owns them
        self.register_buffer("seen", torch.zeros(()))

    def attach(self, net: nn.Module, example: Inputs, generator: torch.Generator) -> None:
        """Put gates on the network."""
        attach_gates(net, example, self.layers, make=self.make, generator=generator)
        self.gates = tuple(gate for _, gate in gates(net))

    @abstractmethod
    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        """The gates of one layer."""

    def losses(self) -> Fields:
        """What is differentiated with the method's other losses."""
        return {}

    def moved(self) -> list[nn.Parameter]:
        """The parameters that :meth:`after_update` moves, and no optimiser."""
        return []

    @torch.no_grad()
    def after_update(self, samples: int) -> None:
        """Called behind every optimiser step, on so many samples."""
        if self.gates:
            self._step(samples)
        self.seen += samples

    def _step(self, samples: int) -> None:
        """Move what :meth:`moved` names, by the gradients the losses have left."""


class _Priced(Gating):
    r"""Policies with a price for each neuron: ``eta``, the weight of the divergence.

    ``anneal`` lets it go as data come in: eta / (1 + anneal * seen / 1000). A prior weighs less the more data there
    are, and a pull that never ends keeps closing neurons the memory still needs. 0 keeps it constant, as the paper
    writes it.
    """

    def __init__(self, eta: float, anneal: float = 0.0, layers: tuple[str, ...] | None = None) -> None:
        super().__init__(layers)
        if not eta > 0:
            raise SnclError(f"`eta` is above 0, not {eta}; without gates use `gates=off`")
        if not anneal >= 0:
            raise SnclError(f"`anneal` is 0 (constant) or above, not {anneal}")
        self.eta, self.anneal = eta, anneal

    def price(self) -> Tensor:
        """The weight of the divergence now."""
        return self.eta / (1 + self.anneal * self.seen / 1000)


class KL(_Priced):
    """As the paper has it: the divergence is a loss like the others, and one optimiser moves everything."""

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        return VarianceGate(channels, axis, generator)

    def losses(self) -> Fields:
        return {"sparsity": self.price() * self.divergence()}

    def divergence(self) -> Tensor:
        r"""L_VBS: the sum over all neurons of KL = 1/2 \log(1 + 1/\lambda), exact. All layers are taken together."""
        mu, log_variance = (
            torch.cat([gate.get_parameter(name) for gate in self.gates]) for name in ("mu", "log_variance")
        )
        return 0.5 * F.softplus(-log_ratio(mu, log_variance)).sum()


class _Stepped(Gating):
    r"""Policies that move \log \lambda themselves."""

    gates: tuple[RatioGate, ...]

    def moved(self) -> list[nn.Parameter]:
        return [gate.get_parameter("log_lambda") for gate in self.gates]

    def _move(self, by: Tensor) -> None:
        r"""Add to \log \lambda, for all gates end to end, and keep it within its limits."""
        log_lambdas: list[Tensor] = [gate.log_lambda for gate in self.gates]
        torch._foreach_add_(log_lambdas, list(by.split([len(each) for each in log_lambdas])))
        torch._foreach_clamp_max_(log_lambdas, HIGHEST_LOG_LAMBDA)
        torch._foreach_clamp_min_(log_lambdas, -LOG_LAMBDA_LIMIT)


class Natural(_Stepped, _Priced):
    r"""Natural gradient steps on \log \lambda.

    In units of the divergence the evidence is loss / \eta + KL, and a log variance has the same Fisher information
    everywhere, so a step does not depend on how small \eta is:

        \log \lambda <- \log \lambda - step * clip(slope / \eta - 1/2 sigmoid(-\log \lambda), -1, 1)

    A single batch says little about the slope dL / d\log \lambda, hence its running mean. A plain gradient step, whose
    length shrinks with \eta, would need many thousand steps from one end to the other.

    ``start`` is "open" or "closed": neurons that start closed wait until data open them.
    """

    def __init__(
        self, eta: float, anneal: float = 0.0, start: str = "open", layers: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(eta, anneal, layers)
        if start not in STARTS:
            raise SnclError(f"`start` is one of {', '.join(STARTS)}, not {start!r}")
        self.start = STARTS[start]

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        return RatioGate(channels, axis, generator, self.start)

    def _step(self, samples: int) -> None:
        slopes = [gate.evidence for gate in self.gates]
        torch._foreach_lerp_(slopes, [_gradient(gate.log_lambda) for gate in self.gates], 1 - SLOPE_DECAY)
        log_lambda = torch.cat([gate.log_lambda for gate in self.gates])
        slope = torch.cat(slopes) / self.price() - 0.5 * torch.sigmoid(-log_lambda)
        self._move(-STEP * slope.clamp(-1, 1))


class Target(_Stepped):
    r"""Close a fraction of all neurons, at least ``sparsity``, the least relevant ones; gates have no noise.

    The relevance is read off the gradients (Gauss-Newton): a running mean of samples * (\mu dL/d\tau)^2. \eta is the
    multiplier of the constraint, such that so many have \rho < \eta / 2, and \log \lambda goes to the balance by at
    most a step: a neuron has to stay irrelevant for a while to close, and relevant for a while to come back. A closed
    one comes back when it is 30 times as relevant as the one that goes for it: without that advantage neurons that are
    alike take turns every other step. All neurons start open.
    """

    def __init__(self, sparsity: float, layers: tuple[str, ...] | None = None) -> None:
        super().__init__(layers)
        if not 0 < sparsity < 1:
            raise SnclError(f"`sparsity` is the fraction of closed neurons, between 0 and 1, not {sparsity}")
        self.sparsity = sparsity

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        return SilentGate(channels, axis, generator)

    def _step(self, samples: int) -> None:
        relevances = [gate.evidence for gate in self.gates]
        batch = [samples * (gate.mu * _gradient(gate.log_lambda)).square() for gate in self.gates]
        torch._foreach_lerp_(relevances, batch, 1 - RELEVANCE_DECAY)
        log_lambda = torch.cat([gate.log_lambda for gate in self.gates])
        relevance = torch.cat(relevances) * torch.where(log_lambda < 0, ADVANTAGE, 1.0)
        closed = math.ceil(round(self.sparsity * len(relevance), 6))  # at least that part, whatever floats make of it
        eta = relevance.sort().values[max(closed - 1, 0) : closed + 1].sum()  # twice the middle of the two
        target = _balance(eta / relevance.clamp(min=torch.finfo(relevance.dtype).tiny))
        self._move((target - log_lambda).clamp(-STEP, STEP))


def _balance(ratio: Tensor) -> Tensor:
    r"""\log \lambda where \lambda (1 + \lambda) is this ratio of \eta to the relevance."""
    return torch.log(ratio / (torch.sqrt(0.25 + ratio) + 0.5))


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

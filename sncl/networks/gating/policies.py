r"""How the gates of a network are trained: one object for each way, with the settings that way has.

:class:`Grow` keeps neurons in reserve and opens them as data come in; :class:`KL` is the paper's divergence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.attach import attach_gates, gates
from sncl.networks.gating.gate import Gate, ReserveGate, VarianceGate, log_ratio
from sncl.tensors.fields import Fields, Inputs

MOST_CLOSED, LEAST_OPEN = 0.7, 32  # neurons of a last hidden layer, before others close


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

    @torch.no_grad()
    def after_update(self, samples: int) -> None:
        """Called behind every optimiser step, on so many samples."""
        self.seen += samples


class Grow(Gating):
    r"""Neurons in reserve, opened as data come in: what is not needed yet cannot be overwritten, nor overwrite.

    In the end a fraction ``sparsity`` of all neurons stays closed, or less where the network would have fewer than
    ``neurons``. Of those that will be open, the fraction

        open(n) = min(max(start, \sqrt{n / (1000 fill)}), 1)

    of each layer is open after n samples, so all of them are after ``fill`` thousand. The square root is how fast
    the best number of hidden units grows with the data (Barron, *Approximation and Estimation Bounds for Artificial
    Neural Networks*, 1994). Neurons of a layer that have not learned yet are alike, so they are opened in their order;
    channels that meet in a residual sum have the same numbers, and what is closed in all of a stage can be removed.

    With ``settle`` above 0 those that will be closed help to learn at first: they are opened like the others, and after
    ``fill`` thousand samples closed again, one after the other, within ``settle`` thousand more.

    Closed neurons are shared out among layers by :func:`closed_by_layer`. A layer of which few neurons are left would
    say and learn less than one that was made that small, whose first weights are larger: so, where the others are never
    open, its means start at sqrt(channels / left) instead of 1, but for residual sums, where that would pile up from
    block to block.
    """

    gates: tuple[ReserveGate, ...]
    order: Tensor  # [neurons of all gates]: the part of the final network with which each is opened; from 1 on, closed
    spare: Tensor  # [neurons of all gates]: the part of its layer's final neurons that is open beside them for a while

    def __init__(
        self,
        sparsity: float,
        start: float = 1.0,
        fill: float = 1.0,
        settle: float = 0.0,
        neurons: int = 0,
        layers: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(layers)
        if not 0 <= sparsity < 1:
            raise SnclError(
                f"`sparsity` is the part of the neurons closed in the end, 0 or more, below 1, not {sparsity}"
            )
        if not 0 < start <= 1:
            raise SnclError(f"`start` is the fraction of neurons open at first, above 0 and at most 1, not {start}")
        if not fill > 0:
            raise SnclError(f"`fill` is the thousands of samples until all neurons are open, above 0, not {fill}")
        if not 0 <= settle < math.inf:
            raise SnclError(
                f"`settle` is the thousands of samples in which spare neurons are closed again, 0 or more, not {settle}"
            )
        if not neurons >= 0:
            raise SnclError(f"`neurons` is how many are open in the end at least, 0 or more, not {neurons}")
        self.sparsity, self.start, self.fill, self.settle, self.neurons = sparsity, start, fill, settle, neurons
        self.register_buffer("order", torch.zeros(0), persistent=False)
        self.register_buffer("spare", torch.zeros(0), persistent=False)

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        return ReserveGate(channels, axis, generator)

    def attach(self, net: nn.Module, example: Inputs, generator: torch.Generator) -> None:
        super().attach(net, example, generator)
        total = sum(gate.channels for gate in self.gates)
        wanted = math.ceil(round(self.sparsity * total, 6))  # at least that part, whatever floats make of it
        closed = closed_by_layer(self.gates, max(0, min(wanted, total - self.neurons)))
        order, spare = [], []
        for gate, shut in zip(self.gates, closed, strict=True):
            left = gate.channels - shut
            order.append(torch.arange(gate.channels) / left)
            spare.append(torch.full((gate.channels,), gate.channels / left - 1))
            if gate.own and not self.settle:
                nn.init.constant_(gate.mu, math.sqrt(gate.channels / left))
        self.order, self.spare = torch.cat(order).to(generator.device), torch.cat(spare).to(generator.device)
        self._open()

    @torch.no_grad()
    def after_update(self, samples: int) -> None:
        super().after_update(samples)
        if self.gates and (self.start < 1 or self.settle):  # or what is open stays so
            self._open()

    def _open(self) -> None:
        seen = self.seen.to(self.order.device)
        part = torch.sqrt(seen / (1000 * self.fill)).clamp(self.start, 1)
        if self.settle:
            part = part * (1 + self.spare * (1 - (seen / 1000 - self.fill) / self.settle).clamp(0, 1))
        opened = (self.order < part).split([gate.channels for gate in self.gates])
        torch._foreach_copy_([gate.opened for gate in self.gates], list(opened))


def closed_by_layer(gates: Sequence[Gate], closed: int) -> list[int]:
    """So many closed neurons, or a few more, shared out among layers: the same fraction of each, but for the last.

    A layer that only the logits read says little more than they do, so its neurons are closed first, up to
    ``MOST_CLOSED`` of them and down to ``LEAST_OPEN``; not those of a residual sum, which are also the neurons of the
    layers before. Where there is no other layer, or there are too few neurons in others, all are alike. Every layer
    keeps a neuron.
    """
    total, last = sum(gate.channels for gate in gates), sum(gate.channels for gate in gates if gate.last)
    there = min(closed, MOST_CLOSED * last, last - LEAST_OPEN)
    here = closed - there
    if last == total or there / max(last, 1) < closed / total or here > MOST_CLOSED * (total - last):
        last, there, here = 0, 0.0, closed
    fractions = [there / last if gate.last and last else here / (total - last) for gate in gates]
    wanted = [math.ceil(round(fraction * gate.channels, 6)) for fraction, gate in zip(fractions, gates, strict=True)]
    return [min(each, gate.channels - 1) for each, gate in zip(wanted, gates, strict=True)]


class KL(Gating):
    r"""As the paper has it: the divergence is a loss like the others, and one optimiser moves everything.

    ``eta`` is its weight, the price of an open neuron. ``anneal`` lets it go as data come in:
    eta / (1 + anneal * seen / 1000). A prior weighs less the more data there are, and a pull that never ends keeps
    closing neurons the memory still needs. 0 keeps it constant, as the paper writes it.
    """

    gates: tuple[VarianceGate, ...]

    def __init__(self, eta: float, anneal: float = 0.0, layers: tuple[str, ...] | None = None) -> None:
        super().__init__(layers)
        if not eta > 0:
            raise SnclError(f"`eta` is above 0, not {eta}; without gates use `gates=off`")
        if not anneal >= 0:
            raise SnclError(f"`anneal` is 0 (constant) or above, not {anneal}")
        self.eta, self.anneal = eta, anneal

    def make(self, channels: int, axis: int, generator: torch.Generator | None) -> Gate:
        return VarianceGate(channels, axis, generator)

    def price(self) -> Tensor:
        """The weight of the divergence now."""
        return self.eta / (1 + self.anneal * self.seen / 1000)

    def losses(self) -> Fields:
        return {"sparsity": self.price() * self.divergence()}

    def divergence(self) -> Tensor:
        r"""L_VBS: the sum over all neurons of KL = 1/2 \log(1 + 1/\lambda), exact. All layers are taken together."""
        mu, log_variance = (torch.cat([getattr(gate, name) for gate in self.gates]) for name in ("mu", "log_variance"))
        return 0.5 * F.softplus(-log_ratio(mu, log_variance)).sum()

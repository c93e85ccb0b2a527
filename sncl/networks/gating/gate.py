r"""Gates on the neurons of a layer: neurons in reserve, and the paper's variational Bayesian sparsity (VBS).

A closed gate silences its neuron. :class:`ReserveGate` keeps some neurons silent, in training as in evaluation, until a
policy opens them. :class:`VarianceGate` is the paper's: it multiplies each neuron's response by a random gate,
h = \tilde h \cdot \tau, with the prior p(\tau) = N(0, \sigma), \sigma uniform, and the posterior

    q(\tau) = N(\mu, \lambda \mu^2).

The best \sigma makes the divergence exact, for one gate

    KL = 1/2 \log(1 + 1/\lambda),

which pulls \lambda up. A neuron whose noise outweighs its mean (\lambda >= 1) carries no signal: it is closed and
masked in evaluation, so that data can bring it back at any time. How gates are trained is a policy of its own,
:mod:`sncl.networks.gating.policies`; what is masked in evaluation is a choice, :mod:`sncl.networks.gating.mask`.

Reference: Gong et al., CVPR 2022, section 3.2; Liu et al., *Variational Bayesian Dropout with a Hierarchical Prior*,
CVPR 2019.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sncl.networks.gating.mask import LOG_LAMBDA_LIMIT, Mask, Moments, below, mixed, reconstruction, select_open

LOG_START = -9.0  # the first log variance


class Gate(nn.Module, ABC):
    """Gates for the ``channels`` neurons of one layer, with channels along ``axis``.

    ``last`` is set where only the logits read the layer, see :class:`sncl.networks.layers.Site`.
    """

    last = False
    shut: Tensor | None = None  # bool [channels]: closed as well, see :func:`sncl.networks.gating.attach.closing`

    def __init__(self, channels: int, axis: int = -1) -> None:
        super().__init__()
        self.channels, self.axis = channels, axis

    @abstractmethod
    def is_open(self) -> Tensor:
        """Which neurons are open in evaluation: bool [channels]."""

    @abstractmethod
    def factor(self) -> Tensor:
        """What each neuron is multiplied by in evaluation; 0 for closed ones. [channels]"""

    def compensation(self) -> Tensor | None:
        """What each closed neuron takes from each open one in evaluation, if that is done: [channels, channels]."""
        return None

    def not_shut(self, is_open: Tensor) -> Tensor:
        """Those of its open neurons that are not shut: bool [channels]."""
        return is_open if self.shut is None else is_open & ~self.shut

    def scaled(self, h: Tensor, factor: Tensor) -> Tensor:
        """Responses times ``factor`` [rows or 1, channels]."""
        shape = [1] * h.dim()
        shape[0], shape[self.axis] = factor.shape
        return h * factor.to(h.dtype).reshape(shape)


class ReserveGate(Gate):
    """Neurons are open or in reserve, where they are silent in training as in evaluation. All start open."""

    opened: Tensor  # bool [channels]

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__(channels, axis)
        device = None if generator is None else generator.device
        self.register_buffer("opened", torch.ones(channels, dtype=torch.bool, device=device))

    def is_open(self) -> Tensor:
        return self.not_shut(self.opened)

    def factor(self) -> Tensor:
        return self.is_open().float()

    def forward(self, h: Tensor) -> Tensor:
        is_open = self.opened if self.training else self.is_open()
        return self.scaled(h, is_open.unsqueeze(0))


class VarianceGate(Gate):
    r"""The paper's gates: they learn a mean and a log variance, and the KL pulls at both.

    In training each sample draws its own gate, from torch's global generator as dropout does. In evaluation gates stay
    at their mean, and closed neurons are silent or compensated for, as :attr:`mask` says. ``generator`` draws the first
    means.
    """

    mask = Mask()
    sampling = False  # see :func:`sncl.networks.gating.attach.sampling`
    masking = True  # see :func:`sncl.networks.gating.attach.unmasked`

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__(channels, axis)
        device = "cpu" if generator is None else generator.device
        self.mu = nn.Parameter(1 + 0.01 * torch.randn(channels, generator=generator, device=device))
        self.log_variance = nn.Parameter(torch.full_like(self.mu, LOG_START))
        self.moments: Moments | None = None
        self._known: tuple[tuple[object, ...], tuple[Tensor, Tensor]] | None = None

    @property
    def log_lambda(self) -> Tensor:
        r"""\log \lambda of every gate, within ±10. [channels]"""
        return log_ratio(self.mu, self.log_variance)

    def draw(self, samples: int) -> Tensor:
        """Gates as training draws them. [samples, channels]"""
        noise = torch.randn(samples, self.channels, device=self.mu.device)
        return torch.addcmul(self.mu, torch.exp(0.5 * self.log_variance), noise)

    def forward(self, h: Tensor) -> Tensor:
        tau = self.draw(h.shape[0]) if self.training or self.sampling else self.mu.unsqueeze(0)
        if not self.training and self.masking:
            tau = tau * self.is_open()
        gated = self.scaled(h, tau)
        if self.moments is not None and self.training:
            self.moments.update(h.detach(), self.axis)
        elif self.compensates and self.masking:
            gated = gated + mixed(h, self._compensated()[1], self.axis)
        return gated

    def track_moments(self) -> None:
        """Learn in training what compensation needs in evaluation."""
        self.moments = Moments(self.channels, self.mu.device)

    @property
    def compensates(self) -> bool:
        """Whether open neurons stand in for closed ones in evaluation."""
        return self.mask.compensate > 0 and self.moments is not None

    @torch.no_grad()
    def is_open(self) -> Tensor:
        if self.compensates:
            return self._compensated()[0]
        return self.not_shut(below(self.log_lambda, self.mask.threshold))

    def factor(self) -> Tensor:
        return self.mu * self.is_open()

    def compensation(self) -> Tensor | None:
        return self._compensated()[1] if self.compensates else None

    @torch.no_grad()
    def _compensated(self) -> tuple[Tensor, Tensor]:
        """Which neurons are open, and what closed ones take from them; kept in evaluation until something changes."""
        assert self.moments is not None
        state = (*self.parameters(), *self.buffers())
        shut = None if self.shut is None else tuple(self.shut.tolist())
        key = (self.mask, shut, *(each._version for each in state))  # a step in between ends evaluation, see train
        if self._known is None or self._known[0] != key or self.training:
            is_open = self.not_shut(select_open(self.moments, self.log_lambda, self.mask))
            takes = self.mu.unsqueeze(1) * reconstruction(self.moments, is_open, self.mask.compensate)
            self._known = key, (is_open, takes)
        return self._known[1]

    def train(self, mode: bool = True) -> VarianceGate:
        self._known = None
        return super().train(mode)


def log_ratio(mu: Tensor, log_variance: Tensor) -> Tensor:
    r"""\log \lambda of a mean and a log variance, kept within ±10."""
    return (log_variance - 2 * torch.log(mu.abs() + 1e-7)).clamp(-LOG_LAMBDA_LIMIT, LOG_LAMBDA_LIMIT)

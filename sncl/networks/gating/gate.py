r"""Gates on the neurons of a layer: neurons in reserve, and the paper's variational Bayesian sparsity (VBS).

A closed gate silences its neuron. :class:`ReserveGate` keeps some neurons silent, in training as in evaluation, until a
policy opens them. :class:`VarianceGate` is the paper's: it multiplies each neuron's response by a random gate,
h = \tilde h \cdot \tau, with the prior p(\tau) = N(0, \sigma), \sigma uniform, and the posterior

    q(\tau) = N(\mu, \lambda \mu^2).

The best \sigma makes the divergence exact, for one gate

    KL = 1/2 \log(1 + 1/\lambda),

which pulls \lambda up. A neuron whose noise outweighs its mean (\lambda >= 1) carries no signal: it is closed and
masked in evaluation, so that data can bring it back at any time. How gates are trained is a policy of its own,
:mod:`sncl.networks.gating.policies`.

Reference: Gong et al., CVPR 2022, section 3.2; Liu et al., *Variational Bayesian Dropout with a Hierarchical Prior*,
CVPR 2019.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sncl.tensors.group import Share

LOG_START = -9.0  # the first log variance
LOG_LAMBDA_LIMIT = 10.0


class Gate(nn.Module, ABC):
    """Gates for the ``channels`` neurons of one layer, channels along ``axis``: each has a mean and is open or not.

    What ``own`` and ``last`` say of the layer is told at :class:`sncl.networks.layers.Site`.
    """

    mu: Tensor  # [channels]
    own = True
    last = False
    shut: Tensor | None = None  # bool [channels]: closed as well, see :func:`sncl.networks.gating.attach.closing`

    def __init__(self, channels: int, axis: int) -> None:
        super().__init__()
        self.channels, self.axis = channels, axis

    @abstractmethod
    def learned_open(self) -> Tensor:
        """Which neurons training has left open: bool [channels]."""

    @torch.no_grad()
    def is_open(self) -> Tensor:
        """Which neurons are open in evaluation: bool [channels]."""
        return self.learned_open() if self.shut is None else self.learned_open() & ~self.shut

    def factor(self) -> Tensor:
        """What each neuron is multiplied by in evaluation; 0 for closed ones. [channels]"""
        return self.mu * self.is_open()

    def scaled(self, h: Tensor, factor: Tensor) -> Tensor:
        """Responses times ``factor`` [rows or 1, channels]."""
        shape = [1] * h.dim()
        shape[0], shape[self.axis] = factor.shape
        return h * factor.to(h.dtype).reshape(shape)


class ReserveGate(Gate):
    """Gates without noise: an open neuron is multiplied by the learned mean, one in reserve is silent in training too.

    All start open, with means of 1.
    """

    opened: Tensor  # bool [channels]

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__(channels, axis)
        device = None if generator is None else generator.device
        self.mu = nn.Parameter(torch.ones(channels, device=device))
        self.register_buffer("opened", torch.ones(channels, dtype=torch.bool, device=device))

    def learned_open(self) -> Tensor:
        return self.opened

    def forward(self, h: Tensor) -> Tensor:
        factor = self.mu * self.opened if self.training else self.factor()
        return self.scaled(h, factor.unsqueeze(0))


class VarianceGate(Gate):
    r"""The paper's gates: they learn a mean and a log variance, and the KL pulls at both.

    In training each sample draws its own gate, from torch's global generator as dropout does. In evaluation gates stay
    at their mean, and closed neurons are silent. ``generator`` draws the first means.
    """

    sampling = False  # see :func:`sncl.networks.gating.attach.sampling`
    masking = True  # see :func:`sncl.networks.gating.attach.unmasked`
    share: Share | None = None  # the part of the samples that is in this process, see :mod:`sncl.networks.sharing`

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__(channels, axis)
        device = None if generator is None else generator.device
        self.mu = nn.Parameter(1 + 0.01 * torch.randn(channels, generator=generator, device=device))
        self.log_variance = nn.Parameter(torch.full_like(self.mu, LOG_START))

    @property
    def log_lambda(self) -> Tensor:
        r"""\log \lambda of every gate, within ±10. [channels]"""
        return log_ratio(self.mu, self.log_variance)

    def learned_open(self) -> Tensor:
        return self.log_lambda < 0

    def draw(self, samples: int) -> Tensor:
        """Gates as training draws them. [samples, channels]"""
        noise = self._noise(samples) if self.share is None else self.share.drawn(samples, self._noise)
        return torch.addcmul(self.mu, torch.exp(0.5 * self.log_variance), noise)

    def _noise(self, samples: int) -> Tensor:
        return torch.randn(samples, self.channels, device=self.mu.device)

    def forward(self, h: Tensor) -> Tensor:
        tau = self.draw(h.shape[0]) if self.training or self.sampling else self.mu.unsqueeze(0)
        if not self.training and self.masking:
            tau = tau * self.is_open()
        return self.scaled(h, tau)


def log_ratio(mu: Tensor, log_variance: Tensor) -> Tensor:
    r"""\log \lambda of a mean and a log variance, kept within ±10."""
    return (log_variance - 2 * torch.log(mu.abs() + 1e-7)).clamp(-LOG_LAMBDA_LIMIT, LOG_LAMBDA_LIMIT)

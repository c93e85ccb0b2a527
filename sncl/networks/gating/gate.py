r"""Variational Bayesian sparsity (VBS): a random gate on every neuron.

The paper multiplies each neuron's response by a gate, h = \tilde h \cdot \tau, with the prior
p(\tau) = N(0, \sigma), \sigma uniform, and the posterior

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

from abc import ABC

import torch
from torch import Tensor, nn

from sncl.networks.gating.mask import LOG_LAMBDA_LIMIT, Mask, Moments, below, mixed, reconstruction, select_open

LOG_START = -9.0  # the first log variance or log lambda of a gate that starts open


class Gate(nn.Module, ABC):
    r"""Gates for the ``channels`` neurons of one layer, with channels along ``axis``.

    In training each sample draws its own gate, from torch's global generator as dropout does. In evaluation gates stay
    at their mean, and closed neurons are silent or compensated for, as :attr:`mask` says. ``generator`` draws the first
    means.
    """

    log_lambda: Tensor  # [channels], within ±10
    mask = Mask()
    sampling = False  # see :func:`sncl.networks.gating.attach.sampling`
    masking = True  # see :func:`sncl.networks.gating.attach.unmasked`

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.axis = axis
        device = "cpu" if generator is None else generator.device
        self.mu = nn.Parameter(1 + 0.01 * torch.randn(channels, generator=generator, device=device))
        self.moments: Moments | None = None
        self._known: tuple[tuple[object, ...], tuple[Tensor, Tensor]] | None = None

    def deviation(self) -> Tensor:
        """The posterior's standard deviation. [channels]"""
        return self.mu.abs() * torch.exp(0.5 * self.log_lambda)

    def draw(self, samples: int) -> Tensor:
        """Gates as training draws them. [samples or 1, channels]"""
        noise = torch.randn(samples, self.mu.shape[0], device=self.mu.device)
        return torch.addcmul(self.mu, self.deviation(), noise)

    def forward(self, h: Tensor) -> Tensor:
        tau = self.draw(h.shape[0]) if self.training or self.sampling else self.mu.unsqueeze(0)
        if not self.training and self.masking:
            tau = tau * self.is_open()
        shape = [1] * h.dim()
        shape[0], shape[self.axis] = tau.shape
        gated = h * tau.to(h.dtype).reshape(shape)
        if self.moments is not None and self.training:
            self.moments.update(h.detach(), self.axis)
        elif self.compensates and self.masking:
            gated = gated + mixed(h, self.compensation(), self.axis)
        return gated

    def track_moments(self) -> None:
        """Learn in training what compensation needs in evaluation."""
        self.moments = Moments(self.mu.shape[0], self.mu.device)

    @property
    def compensates(self) -> bool:
        """Whether open neurons stand in for closed ones in evaluation."""
        return self.mask.compensate > 0 and self.moments is not None

    @torch.no_grad()
    def is_open(self) -> Tensor:
        """Which neurons are open under the mask: bool [channels]."""
        return self._compensated()[0] if self.compensates else below(self.log_lambda, self.mask.threshold)

    @torch.no_grad()
    def compensation(self) -> Tensor:
        """What each closed neuron takes from each open one: [channels, channels], other rows are zeros."""
        return self._compensated()[1]

    def _compensated(self) -> tuple[Tensor, Tensor]:
        """:meth:`is_open` and :meth:`compensation`, kept in evaluation until something changes."""
        assert self.moments is not None
        state = (*self.parameters(), *self.buffers())
        key = (self.mask, *(each._version for each in state))  # a training step in between ends evaluation, see train
        if self._known is None or self._known[0] != key or self.training:
            is_open = select_open(self.moments, self.log_lambda, self.mask)
            takes = self.mu.unsqueeze(1) * reconstruction(self.moments, is_open, self.mask.compensate)
            self._known = key, (is_open, takes)
        return self._known[1]

    def train(self, mode: bool = True) -> Gate:
        self._known = None
        return super().train(mode)


class VarianceGate(Gate):
    r"""Learns the mean and the log variance, as the authors' related code does; the KL then pulls at \mu too."""

    def __init__(self, channels: int, axis: int = -1, generator: torch.Generator | None = None) -> None:
        super().__init__(channels, axis, generator)
        self.log_variance = nn.Parameter(torch.full_like(self.mu, LOG_START))

    @property
    def log_lambda(self) -> Tensor:  # type: ignore[override]
        return log_ratio(self.mu, self.log_variance)

    def deviation(self) -> Tensor:
        return torch.exp(0.5 * self.log_variance)


class RatioGate(Gate):
    r"""Learns the mean and \log \lambda, as the paper writes q; ``start`` is the first \log \lambda.

    ``evidence`` is the running mean of what the gradients say about each neuron; the policy says what that is.
    """

    evidence: Tensor  # [channels]

    def __init__(
        self, channels: int, axis: int = -1, generator: torch.Generator | None = None, start: float = LOG_START
    ) -> None:
        super().__init__(channels, axis, generator)
        self.log_lambda = nn.Parameter(torch.full_like(self.mu, start))
        self.register_buffer("evidence", torch.zeros_like(self.mu))


class SilentGate(RatioGate):
    r"""Without noise: gates stay at their mean, and closed neurons are silent in training too.

    The gradient of \log \lambda is that of the gate itself, so it also tells what a closed neuron would bring.
    """

    def draw(self, samples: int) -> Tensor:
        reading = self.log_lambda - self.log_lambda.detach()  # zeros, with the gradient of the gate, open or not
        return (self.mu * (self.log_lambda < 0) + reading).unsqueeze(0)


def log_ratio(mu: Tensor, log_variance: Tensor) -> Tensor:
    r"""\log \lambda of a mean and a log variance, kept within ±10."""
    return (log_variance - 2 * torch.log(mu.abs() + 1e-7)).clamp(-LOG_LAMBDA_LIMIT, LOG_LAMBDA_LIMIT)

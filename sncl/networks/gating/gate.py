r"""Variational Bayesian sparsity (VBS): a random gate on every neuron of any network.

The paper multiplies each neuron's response by a gate, h = \tilde h \cdot \tau, with the prior
p(\tau) = N(0, \sigma), \sigma uniform, and the posterior

    q(\tau) = N(\mu, \lambda \mu^2).

The best \sigma makes the divergence exact, for one gate

    KL = 1/2 \log(1 + 1/\lambda),

which pulls \lambda up. A neuron whose noise outweighs its mean (\lambda >= 1) carries no signal: it is inactive and
masked *at evaluation only*, so that data can bring it back at any time.

What the data say against it is how much the loss suffers from the noise. Where the two balance, with the weight \eta of
the divergence and the relevance \rho = \mu^2 E[d^2 L / d\tau^2] of a neuron,

    \lambda (1 + \lambda) = \eta / \rho,

and a neuron without which the loss would rise by about \rho / 2 is open exactly where \rho > \eta / 2.
:func:`natural_step` goes there directly.

The posterior above knows nothing of how neurons go together. In evaluation open ones can answer for closed ones, see
:mod:`sncl.networks.gating.compensation`.

Reference: Gong et al., CVPR 2022, section 3.2; Liu et al., *Variational Bayesian Dropout with a Hierarchical Prior*,
CVPR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.networks.gating.compensation import foretold, mixed, unforetold
from sncl.networks.layers import find_sites, named_sites
from sncl.networks.taps import INPUT, layer
from sncl.tensors.fields import Inputs

Parameterisation = Literal["sigma", "lambda"]
Noise = Literal["sample", "channel", "none"]
Part = TypeVar("Part", bound=nn.Module)
LOG_LAMBDA_LIMIT = 10.0
INITIAL_LOG_SPREAD = -9.0
HIGHEST_LOG_LAMBDA = 1.0  # of a natural step: closed for certain, and not yet deafening
MEMORY_OF_SLOPES = 0.99
MEMORY_OF_RELEVANCE = 0.999
MEMORY_OF_POWER = 0.99
MEMORY_OF_MOMENTS = 0.99999  # at most: they are of the whole stream, as the memory is
ADVANTAGE = 30.0  # of an open neuron over a closed one, in relevance, when a reserve chooses between them
INPUT_GATE = "input_gate"  # the name of a gate on what its layer reads


class Gate(nn.Module):
    r"""Gates for the ``channels`` neurons of one layer.

    ``parameterisation`` says what is learned beside the mean: the log variance ("sigma", as the authors' related code
    does; the KL then pulls at \mu too) or log \lambda ("lambda", as the paper writes q; the KL leaves \mu alone).
    ``noise`` draws one gate per row and channel ("sample", less gradient variance) or one per channel for the whole
    batch ("channel"). It comes from torch's global generator, as that of dropout does. With "none" gates stay at their
    mean and closed neurons are silent in training too; the gradient of ``log_spread`` is then that of the gate, and
    tells what a closed neuron would bring. ``generator`` draws the first means, and ``start`` is the first log variance
    or log \lambda. With ``handover`` > 0 closed neurons are not silent in evaluation but as the open ones of their
    layer foretell them; it is the ridge of that regression, in units of their mean power. ``cut`` is the log \lambda
    from which a neuron is closed, at most 0.
    """

    moments: Tensor  # [channels, channels]: mean product of responses over the whole stream, with handover
    power: Tensor  # [channels]: running mean of their squares, as recent as the slopes
    steps: Tensor  # []: how many batches the two have seen
    slope: Tensor  # [channels]: running mean of the data's derivative by the spread; without noise, of the relevance
    cut: Tensor  # []: the log \lambda from which a neuron is inactive
    sampling = False  # see :func:`sampling`
    masking = True  # see :func:`unmasked`

    def __init__(
        self,
        channels: int,
        axis: int = -1,
        parameterisation: Parameterisation = "sigma",
        noise: Noise = "sample",
        generator: torch.Generator | None = None,
        start: float = INITIAL_LOG_SPREAD,
        handover: float = 0.0,
        cut: float = 0.0,
    ) -> None:
        super().__init__()
        self.axis = axis
        self.parameterisation = parameterisation
        self.noise = noise
        self.handover = handover
        device = "cpu" if generator is None else generator.device
        self.mu = nn.Parameter(1 + 0.01 * torch.randn(channels, generator=generator, device=device))
        self.log_spread = nn.Parameter(torch.full((channels,), float(start), device=device))
        self.register_buffer("slope", torch.zeros(channels, device=device))
        self.register_buffer("cut", torch.tensor(float(cut), device=device))
        if handover:
            self.register_buffer("moments", torch.zeros(channels, channels, device=device))
            self.register_buffer("power", torch.zeros(channels, device=device))
            self.register_buffer("steps", torch.zeros((), device=device))
        self._known: tuple[tuple[int, ...], tuple[Tensor, Tensor]] | None = None

    def train(self, mode: bool = True) -> Gate:
        self._known = None
        return super().train(mode)

    def log_lambda(self) -> Tensor:
        r"""\log \lambda of every neuron, kept within ±10. [channels]"""
        return log_lambda(self.mu, self.log_spread, self.parameterisation)

    def deviation(self) -> Tensor:
        """The posterior's standard deviation. [channels]"""
        if self.parameterisation == "sigma":
            return torch.exp(0.5 * self.log_spread)
        return self.mu.abs() * torch.exp(0.5 * self.log_lambda())

    def is_open(self) -> Tensor:
        r"""Which neurons carry signal: \lambda < 1, or less where the cut is lower. [channels]

        Neurons at the lower limit of \lambda are open, for nobody can tell them apart.
        """
        return self._settled()[0] if self.handover and not self.training else self._choose_open()

    @torch.no_grad()
    def _choose_open(self) -> Tensor:
        spread = self.log_lambda()
        spread = torch.where(spread > -LOG_LAMBDA_LIMIT, spread, -torch.inf)
        if not self.handover:
            return spread < self.cut
        return unforetold(self.moments, self.power, spread, self.cut, self.handover)

    def _mask(self) -> Tensor:
        return self.is_open() if self.masking else torch.ones_like(self.mu)

    def forward(self, h: Tensor) -> Tensor:
        if self.training and self.noise == "none":
            reading = self.log_spread - self.log_spread.detach()  # zeros, with the gradient of the gate, open or not
            tau = (self.mu * self._mask() + reading).unsqueeze(0)
        elif self.training or self.sampling:
            rows = h.shape[0] if self.noise == "sample" else 1
            eps = torch.randn(rows, self.mu.shape[0], device=h.device)
            tau = torch.addcmul(self.mu, self.deviation(), eps)  # [rows or 1, channels]
            if not self.training:
                tau = tau * self._mask()
        else:
            tau = (self.mu * self._mask()).unsqueeze(0)
        shape = [1] * h.dim()
        shape[0], shape[self.axis] = tau.shape
        gated = h * tau.to(h.dtype).reshape(shape)
        if self.handover and self.training:
            self._learn_moments(h.detach())
        elif self.handover and self.masking:
            gated = gated + mixed(h, self.handed_over(), self.axis)
        return gated

    @torch.no_grad()
    def _learn_moments(self, h: Tensor) -> None:
        rows = h.movedim(self.axis, -1).flatten(0, -2).to(self.moments.dtype)  # [rows and places, channels]
        with torch.autocast(h.device.type, enabled=False):  # a regression wants the full precision
            products = rows.T @ rows / rows.shape[0]
        self.steps += 1
        share = 1 / self.steps  # of this batch in a mean over all
        self.moments.lerp_(products, share.clamp(min=1 - MEMORY_OF_MOMENTS))
        self.power.lerp_(products.diagonal(), share.clamp(min=1 - MEMORY_OF_POWER))

    def handed_over(self) -> Tensor:
        """What each neuron, if it is closed, takes from each open one: [channels, channels], other rows are zeros."""
        return self._settled()[1]

    @torch.no_grad()
    def _settled(self) -> tuple[Tensor, Tensor]:
        """Which neurons are open, and what is handed over: the same until something changes. For evaluation."""
        state = (self.moments, self.power, self.mu, self.log_spread, self.cut)
        versions = tuple(each._version for each in state)  # a training step in between ends evaluation, see train
        if self._known is None or self._known[0] != versions:
            given = self._choose_open()
            takes = self.mu.unsqueeze(1) * foretold(self.moments, given, self.handover)
            self._known = versions, (given, takes)
        return self._known[1]


class Apply:
    """The forward hook that gates a layer's output (an object, so that copies of a network keep their own gates)."""

    def __init__(self, gate: nn.Module) -> None:
        self.gate = gate

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        return (self.gate(output[0]), *output[1:]) if isinstance(output, tuple) else self.gate(output)


class _ApplyBefore(Apply):
    """The hook that gates what a layer reads."""

    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> Any:
        return super().__call__(module, inputs, inputs)


def attach_gates(
    net: nn.Module,
    example: Inputs,
    layers: tuple[str, ...] | None = None,
    *,
    parameterisation: Parameterisation = "sigma",
    noise: Noise = "sample",
    generator: torch.Generator | None = None,
    start: float = INITIAL_LOG_SPREAD,
    handover: float = 0.0,
    cut: float = 0.0,
) -> nn.Module:
    """Put gates on ``net`` (changed in place and returned).

    ``example`` is a small input batch; it shows how the network is wired. Without ``layers`` the places are found:
    behind the nonlinearity of every hidden layer and on residual sums, never in front of a BatchNorm and never on the
    logits. With ``layers`` they stand behind the layers of these names, or in front of one that ends in ``:input``. The
    other arguments are those of :class:`Gate`.
    """
    if next(gates(net), None) is not None:
        raise SnclError("this network has gates already; attach_gates puts them on once")
    sites = find_sites(net, example) if layers is None else named_sites(net, example, layers)
    for site in sites:
        place = layer(net, site.name)
        gate = Gate(site.channels, site.axis, parameterisation, noise, generator, start, handover, cut)
        gate.train(place.training)
        if isinstance(place, nn.Sequential) and not site.name.endswith(INPUT):
            place.append(gate)  # runs last, as part of the sequence
        elif site.name.endswith(INPUT):
            place.add_module(INPUT_GATE, gate)
            place.register_forward_pre_hook(_ApplyBefore(gate), prepend=True)
        else:
            place.add_module("gate", gate)
            place.register_forward_hook(Apply(gate), prepend=True)  # before the taps, so that they see the gated value
    return net


def gates(net: nn.Module) -> Iterator[tuple[str, Gate]]:
    """The gates of a network by the name of their layer."""
    return by_layer(net, Gate, INPUT_GATE)


def by_layer(net: nn.Module, kind: type[Part], at_input: str) -> Iterator[tuple[str, Part]]:
    """The modules of a kind by the name of the layer they stand on; ``at_input`` is what one on its input is called."""
    for name, module in net.named_modules():
        if isinstance(module, kind):
            place, _, own = name.rpartition(".")
            yield place + INPUT if own == at_input else place, module


def sampling(net: nn.Module) -> AbstractContextManager[None]:
    """Let gates draw from their posterior in evaluation too, while all else stays as it is there.

    BatchNorm keeps its running statistics, dropout does nothing, and closed neurons stay silent: what varies is the
    posterior's uncertainty alone. The noise comes from torch's global generator.
    """
    return _with_gates(net, "sampling", True)


def unmasked(net: nn.Module) -> AbstractContextManager[None]:
    """Let closed neurons speak in evaluation too, at their mean: what the mask costs is the difference."""
    return _with_gates(net, "masking", False)


@contextmanager
def _with_gates(net: nn.Module, switch: str, value: bool) -> Iterator[None]:
    found = [gate for _, gate in gates(net)]
    for gate in found:
        setattr(gate, switch, value)
    try:
        yield
    finally:
        for gate in found:
            setattr(gate, switch, not value)


def log_lambda(mu: Tensor, log_spread: Tensor, parameterisation: Parameterisation) -> Tensor:
    r"""\log \lambda, kept within ±10."""
    value = log_spread
    if parameterisation == "sigma":
        value = value - 2 * torch.log(mu.abs() + 1e-7)
    return value.clamp(-LOG_LAMBDA_LIMIT, LOG_LAMBDA_LIMIT)


def divergence(found: Sequence[Gate]) -> Tensor:
    r"""L_VBS: the sum over all neurons of all gates of KL = 1/2 \log(1 + 1/\lambda), exact.

    The gates of a network are alike in their parameterisation and are taken together, which is much faster than one by
    one.
    """
    mu, log_spread = torch.cat([gate.mu for gate in found]), torch.cat([gate.log_spread for gate in found])
    return 0.5 * F.softplus(-log_lambda(mu, log_spread, found[0].parameterisation)).sum()


@torch.no_grad()
def natural_step(found: Sequence[Gate], eta: Tensor, step: float, worth: float = 0.0, commitment: float = 0.0) -> None:
    r"""Move log \lambda of all gates along the natural gradient of the evidence, by the gradient the data have left.

    In units of the divergence the evidence is loss / \eta + KL, and a log variance has the same Fisher information
    everywhere, so a step does not depend on how small \eta is:

        \log \lambda <- \log \lambda - step * clip(slope / \eta - 1/2 sigmoid(-\log \lambda), -1, 1)

    A single batch says little about the slope, hence its running mean. A plain gradient step, whose length shrinks with
    \eta, would need many thousand steps from one end to the other.

    A neuron is inactive if \lambda >= 1, or if the loss would rise by less than ``worth`` without it:
    \rho / 2 = \eta / (2 \lambda (1 + \lambda)) < worth.

    ``commitment`` weakens the pull on open neurons, by \lambda^commitment. With 1 they balance where
    \lambda = \eta / \rho - 1: what closes stays the same, but a neuron that is twice as relevant as one about to close
    gets no noise at all, instead of \lambda = 0.6.
    """
    slopes = [gate.slope for gate in found]
    spreads: list[Tensor] = [gate.log_spread for gate in found]
    torch._foreach_lerp_(slopes, [_gradient(spread) for spread in spreads], 1 - MEMORY_OF_SLOPES)
    spread = torch.cat(spreads)
    pull = 0.5 * torch.sigmoid(-spread) * torch.exp(commitment * spread.clamp(max=0))
    move = torch.cat(slopes) / eta - pull
    _move(spreads, -step * move.clamp(-1, 1))
    if worth:
        cut = _balance(eta / (2 * worth)).clamp(max=0)
        torch._foreach_copy_([gate.cut for gate in found], [cut] * len(found))


@torch.no_grad()
def reserve_step(found: Sequence[Gate], reserve: float, step: float, rows: int) -> None:
    r"""Close the least relevant neurons, at least ``reserve`` of all, by a batch of ``rows``; gates have no noise.

    The relevance \rho = \mu^2 E[d^2 L / d\tau^2] is read off the gradients (Gauss-Newton): a running mean of
    rows * (\mu dL/d\tau)^2. \eta is the multiplier of the constraint, such that so many have \rho < \eta / 2, and
    log \lambda goes to the balance \lambda (1 + \lambda) = \eta / \rho by at most ``step``: a neuron has to stay
    irrelevant for a while to close, and relevant for a while to come back. A closed one comes back when it is 30 times
    as relevant as the one that goes for it: without that advantage neurons that are alike take turns every other step.
    """
    relevances = [gate.slope for gate in found]
    spreads: list[Tensor] = [gate.log_spread for gate in found]
    batch = [rows * (gate.mu * _gradient(gate.log_spread)).square() for gate in found]
    torch._foreach_lerp_(relevances, batch, 1 - MEMORY_OF_RELEVANCE)
    spread = torch.cat(spreads)
    relevance = torch.cat(relevances) * torch.where(spread < 0, ADVANTAGE, 1.0)
    closed = math.ceil(round(reserve * len(relevance), 6))  # at least that part, whatever floats make of 0.1 * 30
    eta = relevance.sort().values[max(closed - 1, 0) : closed + 1].sum()  # twice the middle of the two
    target = _balance(eta / relevance.clamp(min=torch.finfo(relevance.dtype).tiny))
    _move(spreads, (target - spread).clamp(-step, step))


def _balance(ratio: Tensor) -> Tensor:
    r"""\log \lambda where \lambda (1 + \lambda) is this ratio of \eta to the relevance."""
    return torch.log(ratio / (torch.sqrt(0.25 + ratio) + 0.5))


def _move(spreads: list[Tensor], by: Tensor) -> None:
    """Add to log lambda, for all gates end to end, and keep it within its limits."""
    torch._foreach_add_(spreads, list(by.split([len(spread) for spread in spreads])))
    torch._foreach_clamp_max_(spreads, HIGHEST_LOG_LAMBDA)
    torch._foreach_clamp_min_(spreads, -LOG_LAMBDA_LIMIT)


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def open_neurons(net: nn.Module) -> dict[str, Tensor]:
    """For every gated layer, which neurons are open: bool [channels]."""
    with torch.no_grad():
        return {name: gate.is_open() for name, gate in gates(net)}

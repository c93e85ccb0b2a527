r"""SNCL: sparse gates on every neuron, replay of the whole experience, and a memory balanced by class and loss.

    L = CE(now) + eta L_VBS + alpha CE(memory) + beta ||z - z'||^2 + gamma sum_l ||h_l - h_l'||^2

Reference: Gong et al., *Learning Bayesian Sparse Networks with Full Experience Replay for Continual Learning*,
CVPR 2022.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from sncl.errors import SnclError
from sncl.memory.admission import Admission, LossAwareReservoir, Reservoir
from sncl.methods.method import Growth, Method, Outcome
from sncl.methods.terms import feature_distance, label_losses, logit_distance, with_new_classes
from sncl.networks.gating.gate import (
    INITIAL_LOG_SPREAD,
    LOG_LAMBDA_LIMIT,
    Gate,
    Noise,
    Parameterisation,
    attach_gates,
    divergence,
    gates,
    natural_step,
    reserve_step,
)
from sncl.networks.layers import find_features, named_sites
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs, under, within

ADMISSIONS: dict[str, type[Admission]] = {"reservoir": Reservoir, "loss-aware": LossAwareReservoir}
RESERVE_STEP = 0.02
PRECISIONS: dict[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


class SNCL(Method):
    r"""Each part vanishes at its neutral value, and with all of them off this is DER++ bit for bit.

    ``alpha`` weighs the labels of the memory, ``beta`` its logits, ``gamma`` its features (FER; 0: off) and ``eta``
    the sparsity (VBS; 0: no gates). ``admission`` is "loss-aware" (LRS) or "reservoir".

    Means stand where the paper writes sums, so that the weights mean the same on every network: logits are averaged
    over rows and classes, features over rows and channels and then over layers. Logits and features are replayed on one
    draw and labels on an independent second one, as in DER++.

    ``release`` lets the pull of the prior go as data come in: eta / (1 + release * seen / 1000), with the rows seen so
    far. A prior weighs less the more data there is, and a pull that never ends keeps closing neurons the memory still
    needs. 0 keeps it constant, as the paper writes it. ``gate_lr`` is the gates' step size relative to the network's;
    ``parameterisation``, ``noise`` and ``start`` are those of :class:`sncl.networks.gating.gate.Gate`.

    ``natural`` > 0 moves the gates' spread by natural gradient steps of that size instead
    (:func:`sncl.networks.gating.gate.natural_step`); a ``start`` above 0 then lets every neuron begin closed, until data open
    it. ``cut`` < 0 closes neurons from that log lambda on, not only from 0: the doubtful ones, fewer and fewer as data
    come in. ``worth`` closes those without which the loss would rise by less than that instead. ``commitment`` spares
    neurons that are clearly needed the noise. ``reserve`` > 0 keeps that part of all neurons closed, the least relevant
    ones, without any noise (:func:`sncl.networks.gating.gate.reserve_step`). Nothing else of this paragraph matters then but
    ``natural``, which is 0.02 unless another step is named: all neurons begin open, and eta is whatever it takes.

    ``handover`` > 0 lets the open neurons of a layer answer for its closed ones in evaluation, as far as they foretell
    them, and what they foretell of a neuron does not count for keeping it open. It is the ridge of that regression, in
    units of the neurons' mean power (1 is a good one).

    ``layers`` names the layers that carry gates and ``features`` those that are replayed, with commas between them;
    "auto" finds the places where the network's neurons are finished. A name that ends in ``:input`` is what that layer
    reads. ``maps`` says whether feature maps and sequences are stored "pooled" over space or positions, or "full"; full
    maps belong to one view of the image, so they only make sense without augmentation. ``stored`` is the precision the
    memory keeps features in.
    """

    def __init__(
        self,
        alpha: float,
        beta: float,
        gamma: float,
        eta: float,
        admission: str = "loss-aware",
        release: float = 0.0,
        gate_lr: float = 1.0,
        parameterisation: Parameterisation = "sigma",
        noise: Noise = "sample",
        start: float = INITIAL_LOG_SPREAD,
        natural: float = 0.0,
        cut: float = 0.0,
        worth: float = 0.0,
        commitment: float = 0.0,
        reserve: float = 0.0,
        handover: float = 0.0,
        layers: str = "auto",
        features: str = "auto",
        maps: Literal["pooled", "full"] = "pooled",
        stored: str = "float16",
    ) -> None:
        super().__init__()
        for name, value, allowed in (
            ("admission", admission, tuple(ADMISSIONS)),
            ("parameterisation", parameterisation, ("sigma", "lambda")),
            ("noise", noise, ("sample", "channel")),
            ("maps", maps, ("pooled", "full")),
            ("stored", stored, tuple(PRECISIONS)),
        ):
            if value not in allowed:
                raise SnclError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
        if not 0 <= reserve < 1:
            raise SnclError(f"reserve is a part of the neurons, at least 0 and below 1, not {reserve}")
        if reserve and not eta:
            raise SnclError(
                "reserve is about gates, and eta=0 takes them away: set eta above 0 (any value), or reserve=0"
            )
        if not -LOG_LAMBDA_LIMIT <= cut <= 0:
            raise SnclError(f"cut is a log lambda from {-LOG_LAMBDA_LIMIT:g} to 0, not {cut}")
        if cut and worth:
            raise SnclError("cut and worth both say which neurons are closed: one of the two is 0")
        if handover < 0:
            raise SnclError(f"handover is 0 (off) or the ridge of a regression, above 0, not {handover}")
        if reserve and handover:
            raise SnclError("neurons in reserve are silent in training and hand nothing over: reserve or handover is 0")
        if reserve:
            parameterisation, start, natural = "lambda", INITIAL_LOG_SPREAD, natural or RESERVE_STEP
            noise, cut, worth, commitment = "none", 0.0, 0.0, 0.0
        if natural and parameterisation != "lambda":
            raise SnclError("natural steps move log lambda: natural > 0 needs parameterisation=lambda")
        if worth and not natural:
            raise SnclError("worth is told by natural steps: worth > 0 needs natural > 0")
        if commitment and not natural:
            raise SnclError("commitment belongs to natural steps: commitment > 0 needs natural > 0")
        if worth and commitment:
            raise SnclError("worth reads a balance that commitment moves: one of the two is 0")
        self.alpha, self.beta, self.gamma, self.eta = alpha, beta, gamma, eta
        self.draws = 2 if alpha else 1
        self.admission = ADMISSIONS[admission]()
        self.release, self.gate_lr = release, gate_lr
        self.parameterisation, self.noise = parameterisation, noise
        self.start, self.natural, self.worth, self.commitment = start, natural, worth, commitment
        self.reserve, self.handover, self.cut = reserve, handover, cut
        self.layers, self.features, self.maps, self.stored = layers, features, maps, PRECISIONS[stored]
        self.gates: tuple[Gate, ...] = ()  # of the prepared network, which owns them
        self.axes: dict[str, int] = {}  # the replayed layers, and where their channels lie
        self.register_buffer("seen", torch.zeros(()))
        self.seen: Tensor

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        if self.gamma:
            chosen = _names(self.features)
            sites = find_features(net, example) if chosen is None else named_sites(net, example, chosen)
            self.axes = {site.name: site.axis for site in sites}
        if self.eta:
            attach_gates(
                net,
                example,
                _names(self.layers),
                parameterisation=self.parameterisation,
                noise=self.noise,
                generator=noise,
                start=self.start,
                handover=self.handover,
                cut=self.cut,
            )
        self.gates = tuple(gate for _, gate in gates(net))
        return Tapped(net, tuple(self.axes))

    def parameter_groups(self, net: Tapped, lr: float) -> list[dict[str, Any]]:
        ours = {parameter for gate in self.gates for parameter in gate.parameters()}
        plain = [parameter for parameter in net.parameters() if parameter not in ours]
        gated = [gate.mu for gate in self.gates]
        gated += [] if self.natural else [gate.log_spread for gate in self.gates]
        groups: list[dict[str, Any]] = [{"params": plain, "lr": lr}]
        return groups + ([{"params": gated, "lr": lr * self.gate_lr}] if gated else [])

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        here, *there = net.passes(inputs(now), *(inputs(rows) for rows in past))
        each = label_losses(here.logits, now["y"])  # [rows]
        losses = {"labels": each.mean()}
        refresh: Fields = {}
        if past:
            losses["past_logits"] = self.beta * logit_distance(there[0].logits, past[0]["logits"])
        if past and self.gamma:
            distance = feature_distance(self._kept(there[0].features), within("features", past[0]))
            losses["past_features"] = self.gamma * distance
        if past and self.alpha:
            again = label_losses(there[1].logits, past[1]["y"])  # [rows]
            losses["past_labels"] = self.alpha * again.mean()
            refresh = {"slot": past[1]["slot"], "loss": again}
        if self.eta and not self.reserve:  # whose eta is a multiplier, not a weight
            pull = self.pull() * divergence(self.gates)
            losses["sparsity"] = pull.detach() if self.natural else pull
        remember = {"logits": here.logits, "loss": each, **under("features", self._kept(here.features))}
        return Outcome(losses, remember, refresh)

    def stored_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        return self.stored if name.startswith("features/") else dtype

    def after_update(self, net: Tapped, now: Fields) -> None:
        if self.natural and self.gates:
            if self.reserve:
                reserve_step(self.gates, self.reserve, self.natural, now["y"].shape[0])
            else:
                natural_step(self.gates, self.pull(), self.natural, self.worth, self.commitment)
            for gate in self.gates:
                gate.log_spread.grad = None  # which the optimiser does not know
        self.seen += now["y"].shape[0]

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        super().grow(net, growth)
        return {"logits": with_new_classes(growth.stored["logits"], growth.outputs)} if growth.stored else {}

    def pull(self) -> Tensor:
        """The weight of the divergence now: eta, released by the rows seen."""
        return self.eta / (1 + self.release * self.seen / 1000)

    def _kept(self, features: Fields) -> Fields:
        """What is stored and compared of each layer: [rows, channels], or the whole map."""
        if self.maps == "full":
            return features
        return {name: _pooled(h, self.axes[name]) for name, h in features.items()}


def _pooled(h: Tensor, axis: int) -> Tensor:
    """The mean over space or positions. [rows, channels]"""
    if h.dim() < 3:
        return h
    return h.flatten(2).mean(2) if axis == 1 else h.flatten(1, -2).mean(1)


def _names(text: str) -> tuple[str, ...] | None:
    """Layer names with commas between them; None where they are to be found."""
    return None if text == "auto" else tuple(name.strip() for name in text.split(","))

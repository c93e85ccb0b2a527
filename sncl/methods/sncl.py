r"""SNCL: sparse gates on every neuron, replay of the whole experience, and a memory balanced by class and loss.

    L = CE(now) + L_gates + alpha CE(memory) + beta ||z - z'||^2 + gamma sum_l ||h_l - h_l'||^2

Gong et al., *Learning Bayesian Sparse Networks with Full Experience Replay for Continual Learning*, CVPR 2022.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sncl.memory.admission import Admission, LossAwareReservoir
from sncl.methods.method import Growth, Method, Outcome
from sncl.methods.terms import (
    among_present,
    check_ace,
    feature_distance,
    label_losses,
    logit_distance,
    pooled,
    weighted_mean,
    with_new_classes,
)
from sncl.networks.gating.policies import Gating
from sncl.networks.layers import find_features, named_sites
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs, under, within


class SNCL(Method):
    r"""Each part vanishes at its neutral value, and with all of them off this is DER++ bit for bit.

    ``alpha`` weighs the labels of the memory, ``beta`` its logits and ``gamma`` its features (FER; 0: off). ``gating``
    puts gates on the neurons and trains them (VBS; None: no gates): L_gates = eta L_VBS with the paper's ``KL``.
    ``admission`` decides what enters the memory (default: LRS). ``features`` names the layers that are replayed
    (``name:input``: what a layer reads); None finds where the network's neurons are finished.

    Means stand where the paper writes sums, so that weights mean the same on every network. Logits and features are
    replayed on one draw and labels on an independent second one, as in DER++. Features are stored in half precision.
    Weights of samples reach the labels' losses alone: admission sorts by how hard a sample is, not how much it counts.
    With ``ace``, which the paper has not, the labels of the batch compete among its own classes only.
    """

    takes_weights = True

    def __init__(
        self,
        alpha: float,
        beta: float,
        gamma: float,
        gating: Gating | None = None,
        admission: Admission | None = None,
        features: tuple[str, ...] | None = None,
        ace: int = 0,
    ) -> None:
        super().__init__()
        self.ace = check_ace(ace)
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.gating, self.features = gating, features
        self.admission = admission or LossAwareReservoir()
        self.draws = 2 if alpha else 1
        self.axes: dict[str, int] = {}  # the replayed layers, and where their channels lie

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        if self.gamma:
            sites = find_features(net, example) if self.features is None else named_sites(net, example, self.features)
            self.axes = {site.name: site.axis for site in sites}
        if self.gating is not None:
            self.gating.attach(net, example, noise)
        return Tapped(net, tuple(self.axes))

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        here, *there = net.passes(inputs(now), *(inputs(batch) for batch in past))
        each = label_losses(here.logits, now["y"])  # what LRS sorts by: among all classes
        labels = label_losses(among_present(here.logits, now["y"]), now["y"]) if self.ace else each
        losses = {"labels": weighted_mean(labels, now)}
        refresh: Fields = {}
        if past:
            losses["past_logits"] = self.beta * logit_distance(there[0].logits, past[0]["logits"])
        if past and self.gamma:
            distance = feature_distance(pooled(there[0].features, self.axes), within("features", past[0]))
            losses["past_features"] = self.gamma * distance
        if past and self.alpha:
            again = label_losses(there[1].logits, past[1]["y"])  # [samples]
            losses["past_labels"] = self.alpha * weighted_mean(again, past[1])
            refresh = {"slot": past[1]["slot"], "loss": again}
        losses |= self.gating.losses() if self.gating is not None else {}
        remember = {"logits": here.logits, "loss": each, **under("features", pooled(here.features, self.axes))}
        return Outcome(losses, remember, refresh)

    def stored_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        return torch.float16 if name.startswith("features/") else dtype

    def condensed(self, features: Fields) -> Fields:
        return pooled(features, self.axes)

    def after_update(self, net: Tapped, now: Fields) -> None:
        if self.gating is not None:
            self.gating.after_update(now["y"].shape[0])

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        super().grow(net, growth)
        return {"logits": with_new_classes(growth.stored["logits"], growth.outputs)} if growth.stored else {}

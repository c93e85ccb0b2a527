r"""iCaRL: learn every class by itself, keep its most typical images, and name what lies nearest to their mean.

    L = BCE(sigmoid f(x), t) + decay * sum theta^2
    t_c = [y = c] for a class c of this task, sigmoid f_old(x)_c for one of an earlier task

Reference: Rebuffi et al., *iCaRL: Incremental Classifier and Representation Learning*, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sncl.errors import SnclError
from sncl.memory.admission import AtBoundaries
from sncl.methods.method import Growth, Method, Outcome, TaskEnd
from sncl.methods.terms import joined, padded
from sncl.networks.last import LAST, tap_last
from sncl.networks.taps import Tapped, call, evaluating
from sncl.tensors.fields import Fields, Inputs, inputs, named, picked, pieces

SAMPLES_AT_ONCE = 500  # samples in one pass over a task that has ended


class ICaRL(Method):
    """The loss is the mean over samples and over the classes seen so far; the old network is that of the last boundary.

    At a boundary each of the n classes seen keeps M / n exemplars, rounded down: new classes by :func:`herd`, older
    ones by dropping those that were picked last (``order``). ``exemplars_per_batch`` of them are learned beside every
    batch. A sample is given the class whose exemplars have the nearest mean in feature space, and the logits are minus
    the squared distances; before the first boundary they are the network's own.

    Departures: features are not brought to length 1, as in the published runs of 2020. Those mix the exemplars into the
    data of the task, so that M / (M + samples of the task) of each batch are exemplars on average; here it is a fixed
    number. The means are those of the network at the last boundary: within a task they are older than the network.
    Classes are taken to come in one task only: one that comes again has its old outputs distilled, and is herded anew.
    It takes no weights of samples: what it predicts by are means of exemplars, of which every class has as many.
    """

    draws = 1
    needs_boundaries = True
    supports_ema = False  # its class means are those of the network as it was trained
    revisits = True
    old: nn.Module  # the network at the last boundary
    seen: Tensor  # bool [classes]: in any batch so far
    learned: Tensor  # bool [classes]: in any task that has ended
    means: Tensor  # [classes, features] of the exemplars
    kept: Tensor  # bool [classes]: has exemplars

    def __init__(self, decay: float, exemplars_per_batch: int = 1) -> None:
        super().__init__()
        if exemplars_per_batch < 1:
            raise SnclError(f"`exemplars_per_batch` is at least 1, not {exemplars_per_batch}")
        self.decay, self.exemplars_per_batch = decay, exemplars_per_batch
        self.admission = AtBoundaries()

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        tapped = tap_last(net, example)
        with evaluating(tapped), torch.no_grad():
            logits, features = tapped(example)
        classes = logits.shape[1]
        self.old = deepcopy(net).requires_grad_(False).eval()
        for name in ("seen", "learned", "kept"):
            self.register_buffer(name, torch.zeros(classes, dtype=torch.bool, device=logits.device))
        self.register_buffer("means", logits.new_zeros(classes, features[LAST].shape[1]))
        return tapped

    def replayed_rows(self, draw: int, usual: int) -> int:
        return self.exemplars_per_batch

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x, labels = joined(now, past)
        logits = net(x).logits.float()
        targets = F.one_hot(labels["y"], logits.shape[1]).to(logits.dtype)  # [rows, classes]
        if past:
            with torch.no_grad():
                targets = torch.where(self.learned, call(self.old, x).float().sigmoid(), targets)
        seen = self.seen.index_fill(0, now["y"], True)
        each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none") * seen
        losses = {"labels": each.sum(1).mean() / seen.sum()}
        if self.decay:
            losses["decay"] = self.decay * torch.stack([theta.square().sum() for theta in net.parameters()]).sum()
        return Outcome(losses)

    def after_update(self, net: Tapped, now: Fields) -> None:
        self.seen.index_fill_(0, now["y"], True)

    @torch.no_grad()
    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields:
        x, y, stored = inputs(end.rows), end.rows["y"], end.memory
        self.seen.index_fill_(0, y, True)
        classes, new = int(self.seen.sum()), y.unique()
        quota = end.capacity // classes
        if quota == 0:
            raise SnclError(f"a `memory` of {end.capacity} has no room for an exemplar of each of {classes} classes")
        parts: list[Fields] = []
        if "order" in stored:
            stays = (stored["order"] < quota) & ~torch.isin(stored["y"], new)
            parts.append({name: value[stays] for name, value in stored.items()})
        features = last_features(net, x, end.test_transform)
        for label in new:
            own = (y == label).nonzero()[:, 0]
            picks = own[herd(features[own], quota)]
            parts.append({**named(picked(x, picks)), "y": y[picks], "order": torch.arange(len(picks), device=y.device)})
        content = {name: torch.cat([part[name] for part in parts]) for name in (*named(x), "y", "order")}

        member = F.one_hot(content["y"], len(self.seen)).to(features.dtype)  # [exemplars, classes]
        sums = member.T @ last_features(net, inputs(content), end.test_transform)
        self.means.copy_(sums / member.sum(0).clamp(min=1)[:, None])
        self.kept.copy_(member.any(0))
        self.learned.copy_(self.seen)
        self.old.load_state_dict(net.body.state_dict())
        return content

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        growth.widen(self.old)
        self.seen, self.learned, self.kept = (
            padded(each, growth.outputs) for each in (self.seen, self.learned, self.kept)
        )
        self.means = padded(self.means, growth.outputs)
        return super().grow(net, growth)

    def predict(self, net: Tapped, x: Inputs, task: int | None = None) -> Tensor:
        logits, features = net(x)
        apart = torch.cdist(features[LAST], self.means, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = (-apart.square()).masked_fill(~self.kept, torch.finfo(apart.dtype).min)
        return torch.where(self.kept.any(), nearest, logits)


def herd(features: Tensor, count: int) -> Tensor:
    """The samples whose features have, one after the other, the mean nearest to that of all samples. [at most count]"""
    mean, total = features.mean(0), torch.zeros_like(features[0])
    taken = torch.zeros_like(features[:, 0])
    picks: list[Tensor] = []
    for number in range(1, min(count, len(features)) + 1):
        apart = (mean - (total + features) / number).square().sum(1) + taken
        picks.append(apart.argmin())
        taken[picks[-1]] = torch.inf
        total = total + features[picks[-1]]
    return torch.stack(picks)


def last_features(net: Tapped, x: Inputs, transform: Callable[[Inputs], Inputs]) -> Tensor:
    """The last features of many samples, in evaluation. [rows, features]"""
    with evaluating(net):
        return torch.cat([net(transform(part)).features[LAST].float() for part in pieces(x, SAMPLES_AT_ONCE)])

r"""Learning without Forgetting: answer on new data as the network did before it saw them.

    L = CE_seen(now) + alpha * H(softmax(z* / temperature), softmax(z / temperature)) + decay * ||theta||^2

z* are the logits of the network as it was when the last task ended; H is the cross-entropy of the two answers over the
classes known by then, its mean over samples.

Reference: Li and Hoiem, *Learning without Forgetting*, ECCV 2016.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from sncl.methods.method import Growth, Method, Outcome, TaskEnd
from sncl.methods.terms import label_loss, padded
from sncl.networks.taps import Tapped, call, evaluating
from sncl.tensors.fields import Fields, Inputs, inputs

CLOSED = -1e9  # a logit whose softmax is exactly 0; finite, so that closing every class gives no NaN
BEHIND = 1e4  # how far the logits of classes that never came are put behind; small enough to keep their order


class LwF(Method):
    """``alpha`` weighs the old answers and ``decay`` the squared weights; both may be 0.

    The labels' softmax runs over the classes that occurred so far, in this batch included. Nothing is distilled until
    a task has ended: no class is known by then, so the term is exactly 0.

    The old network looks at the very images that are trained on, with its own BatchNorm statistics. The code behind the
    published numbers instead trains the classifier alone on the new task first, and then notes the answers to images
    that are neither augmented nor normalised; and it opens all classes of a task at its first batch.
    """

    takes_weights = True
    needs_boundaries = True

    def __init__(self, alpha: float, temperature: float = 2.0, decay: float = 0.0) -> None:
        super().__init__()
        self.alpha = alpha
        self.temperature = temperature
        self.decay = decay
        self.seen: Tensor  # bool [classes]
        self.known: Tensor  # bool [classes], seen when the last task ended

    def prepare(self, net: nn.Module, example: Any, noise: torch.Generator) -> Tapped:
        with evaluating(net), torch.no_grad():
            logits = call(net, example)
        self.register_buffer("seen", torch.zeros_like(logits[0], dtype=torch.bool))
        self.register_buffer("known", torch.zeros_like(self.seen))
        self.before = deepcopy(net).eval().requires_grad_(False)
        return Tapped(net)

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        logits = net(inputs(now)).logits.float()
        among = self.seen.index_fill(0, now["y"], True)
        losses = {"labels": label_loss(logits.masked_fill(~among, CLOSED), now)}
        if self.alpha:
            with torch.no_grad():
                answers = call(self.before, inputs(now)).float()
            losses["past_answers"] = self.alpha * self._distillation(logits, answers)
        if self.decay:
            losses["decay"] = self.decay * torch.stack([weight.square().sum() for weight in net.parameters()]).sum()
        return Outcome(losses)

    def after_update(self, net: Tapped, now: Fields) -> None:
        self.seen.index_fill_(0, now["y"], True)

    def at_boundary(self, net: Tapped, end: TaskEnd) -> Fields | None:
        self.before.load_state_dict(net.body.state_dict())
        self.known.copy_(self.seen)
        return None

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        growth.widen(self.before)
        self.seen, self.known = (padded(each, growth.outputs) for each in (self.seen, self.known))
        return super().grow(net, growth)

    def predict(self, net: Tapped, x: Inputs, task: int | None = None) -> Tensor:
        """The training left the units of classes that never came as they were, so they stand behind all others."""
        logits = super().predict(net, x, task)
        return logits - BEHIND * ~self.seen

    def _distillation(self, logits: Tensor, answers: Tensor) -> Tensor:
        closed = ~self.known
        wanted = (answers / self.temperature).masked_fill(closed, CLOSED).softmax(1)
        given = (logits / self.temperature).masked_fill(closed, CLOSED).log_softmax(1)
        return -(wanted * given.masked_fill(closed, 0.0)).sum(1).mean()

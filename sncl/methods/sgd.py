"""Plain stochastic gradient descent on the stream: what forgetting looks like."""

from __future__ import annotations

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs


class SGD(Method):
    """loss = CE(f(x), y): nothing is remembered. Over the joint stream it is the upper bound, JOINT."""

    takes_weights = True

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        return Outcome({"labels": label_loss(net(inputs(now)).logits, now)})

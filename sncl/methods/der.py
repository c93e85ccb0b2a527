"""Dark Experience Replay, with and without labels: keep answering as the network did when it learned the sample."""

from __future__ import annotations

from sncl.methods.method import Growth, Method, Outcome
from sncl.methods.terms import among_present, check_ace, label_loss, logit_distance, with_new_classes
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs


class DER(Method):
    """loss = CE(now) + ``logits`` * MSE(f(x'), z') + ``labels`` * CE(f(x''), y'').

    (x', z') and (x'', y'') are two independent draws; z' are the logits of the very pass that trained on the sample,
    on the augmented image. ``labels=0`` is DER and draws once, otherwise it is DER++. In the paper that introduced them
    ``logits`` is called alpha and ``labels`` beta. With ``ace`` the labels of the batch compete among its own classes
    only.

    Reference: Buzzega et al., *Dark Experience for General Continual Learning*, NeurIPS 2020.
    """

    takes_weights = True

    def __init__(self, logits: float, labels: float = 0.0, ace: int = 0) -> None:
        super().__init__()
        self.ace = check_ace(ace)
        self.logits = logits
        self.labels = labels
        self.draws = 2 if labels else 1

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        here, *there = net.passes(inputs(now), *(inputs(rows) for rows in past))
        losses = {"labels": label_loss(among_present(here.logits, now["y"]) if self.ace else here.logits, now)}
        if past:
            losses["past_logits"] = self.logits * logit_distance(there[0].logits, past[0]["logits"])
        if past and self.labels:
            losses["past_labels"] = self.labels * label_loss(there[1].logits, past[1])
        return Outcome(losses, remember={"logits": here.logits})

    def grow(self, net: Tapped, growth: Growth) -> Fields:
        super().grow(net, growth)
        return {"logits": with_new_classes(growth.stored["logits"], growth.outputs)} if growth.stored else {}

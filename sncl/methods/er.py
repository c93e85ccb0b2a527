"""Experience Replay: learn the batch and a batch from the memory together."""

from __future__ import annotations

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import joined, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields


class ER(Method):
    """loss = CE over the batch and one replayed batch, in a single forward pass and a single mean.

    Reference: Riemer et al., *Learning to Learn without Forgetting*, ICLR 2019; Chaudhry et al., *On Tiny Episodic
    Memories in Continual Learning*, 2019.
    """

    takes_weights = True
    draws = 1

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x, labels = joined(now, past)
        return Outcome({"labels": label_loss(net(x).logits, labels)})

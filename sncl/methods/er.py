"""Experience Replay: learn the batch and a batch from the memory together."""

from __future__ import annotations

import torch

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import among_present, check_ace, joined, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields


class ER(Method):
    """loss = CE over the batch and one replayed batch, in a single forward pass and a single mean.

    With ``ace`` the labels of the batch compete among its own classes only. What remains different from ER-ACE is the
    single pass and the single mean.

    Reference: Riemer et al., *Learning to Learn without Forgetting*, ICLR 2019; Chaudhry et al., *On Tiny Episodic
    Memories in Continual Learning*, 2019.
    """

    takes_weights = True
    draws = 1

    def __init__(self, ace: int = 0) -> None:
        super().__init__()
        self.ace = check_ace(ace)

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x, labels = joined(now, past)
        logits = net(x).logits
        if self.ace:
            new, old = logits.split([len(now["y"]), len(logits) - len(now["y"])])
            logits = torch.cat([among_present(new, now["y"]), old.float()])
        return Outcome({"labels": label_loss(logits, labels)})

"""Experience Replay: learn the batch and a batch from the memory together."""

from __future__ import annotations

import torch

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_losses
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, end_to_end


class ER(Method):
    """loss = CE over the batch and one replayed batch, in a single forward pass and a single mean.

    Reference: Riemer et al., *Learning to Learn without Forgetting*, ICLR 2019; Chaudhry et al., *On Tiny Episodic
    Memories in Continual Learning*, 2019.
    """

    draws = 1

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        x = end_to_end([now["x"], *(rows["x"] for rows in past)])
        y = torch.cat([now["y"], *(rows["y"] for rows in past)])
        return Outcome({"labels": label_losses(net(x).logits, y).mean()})

r"""ER-ACE: new classes compete among themselves, and meet the old ones only in the memory.

    L = CE(f(x), y; classes of the batch) + CE(f(x'), y'; all classes)

With ordinary replay a batch of new classes pushes every old class down, and what the old ones had learned is disrupted
at once. Here the softmax over the incoming batch runs over the classes that occur in that batch only.

Reference: Caccia et al., *New Insights on Reducing Abrupt Representation Change in Online Continual Learning*,
ICLR 2022.
"""

from __future__ import annotations

import torch

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs


class ERACE(Method):
    """Two means, one over the batch and one over one replayed batch (x', y'), added with equal weight.

    The paper's second sum is over the classes seen so far. Here it is over all output units, as in all other replay
    methods here: which classes are still to come is not known to the method, and units of classes that never come are
    pushed down to where they do not matter. Replay starts with the second batch and not with the second task, since
    nobody says where that begins. A batch of a single class has nothing to tell apart and teaches through the memory
    alone.
    """

    takes_weights = True
    draws = 1

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        here, *there = net.passes(inputs(now), *(inputs(rows) for rows in past))
        logits = here.logits.float()
        absent = torch.ones_like(logits[0], dtype=torch.bool).index_fill_(0, now["y"], False)  # [classes]
        losses = {"labels": label_loss(logits.masked_fill(absent, -torch.inf), now)}
        if past:
            losses["past_labels"] = label_loss(there[0].logits, past[0])
        return Outcome(losses)

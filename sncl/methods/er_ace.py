r"""ER-ACE: new classes compete among themselves, and meet the old ones only in the memory.

    L = CE(f(x), y; classes of the batch) + CE(f(x'), y'; all classes)

The setting ``ace`` of other methods does the same to their incoming batches.

Reference: Caccia et al., *New Insights on Reducing Abrupt Representation Change in Online Continual Learning*,
ICLR 2022.
"""

from __future__ import annotations

from sncl.methods.method import Method, Outcome
from sncl.methods.terms import among_present, label_loss
from sncl.networks.taps import Tapped
from sncl.tensors.fields import Fields, inputs


class ERACE(Method):
    """Two means, one over the batch and one over one replayed batch (x', y'), added with equal weight.

    The paper's second sum is over the classes seen so far. Here it is over all output units, as in all other replay
    methods here: which classes are still to come is not known to the method, and units of classes that never come are
    pushed down to where they do not matter. Replay starts with the second batch and not with the second task, since
    nobody says where that begins.
    """

    takes_weights = True
    draws = 1

    def observe(self, net: Tapped, now: Fields, past: tuple[Fields, ...]) -> Outcome:
        here, *there = net.passes(inputs(now), *(inputs(rows) for rows in past))
        losses = {"labels": label_loss(among_present(here.logits, now["y"]), now)}
        if past:
            losses["past_labels"] = label_loss(there[0].logits, past[0])
        return Outcome(losses)

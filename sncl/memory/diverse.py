"""A memory of samples whose gradients differ: admission by score, for GSS."""

from __future__ import annotations

import torch
from torch import Tensor

from sncl.memory.admission import Admission, Count
from sncl.tensors.fields import Fields
from sncl.tensors.transfer import upload


class GradientDiverse(Admission):
    """Samples of low ``score`` replace samples of high score: 1 + the largest cosine to some remembered gradients.

    The memory fills up first. Then a batch is considered only if its ``batch_score`` is below 1, that is if it pulls
    against all it was compared with. Each of its samples, with score c, meets one slot, drawn in proportion to the
    stored scores, and takes it with probability s / (s + c), where s is the score of the sample that is there.

    All samples of a batch meet the memory as the batch found it (filled up by its first samples, if it was not full).
    Offered one by one, a sample could also meet one admitted just before; here it meets it only by drawing the same
    slot, and of samples that take one slot the latest stays.

    Reference: Aljundi et al., *Gradient based sample selection for online continual learning*, NeurIPS 2019.
    """

    reads = ("score", "batch_score")

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        seen, capacity = count.seen, count.capacity
        number = seen + torch.arange(uniform.shape[0])
        filling = number.clamp(max=capacity)
        if seen + uniform.shape[0] <= capacity:
            return filling  # known on the host
        scores, own = stored["score"].double(), incoming["score"].double()
        if seen < capacity:
            scores = torch.cat([scores[:seen], own[: capacity - seen]])
        filling, uniform = (upload(each, scores.device) for each in (filling, uniform))
        up_to = scores.cumsum(0)  # [capacity]
        met = torch.searchsorted(up_to, uniform[:, 1] * up_to[-1], right=True).clamp(max=capacity - 1)  # [rows]
        wins = uniform[:, 2] * (scores[met] + own) < scores[met]
        enters = wins & (incoming["batch_score"] < 1)
        return torch.where(filling < capacity, filling, torch.where(enters, met, capacity))

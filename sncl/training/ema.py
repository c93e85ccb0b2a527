"""The exponential moving average (EMA) of a network's weights, to predict with.

Late in a stream a network is always fresh from its last batches. Its average over the last thousands of steps forgets
less and varies less, costs one fused update per step, and needs no boundaries. Training never sees it.

Reference: Polyak and Juditsky, *Acceleration of Stochastic Approximation by Averaging*, 1992; as a slow memory for
continual learning: Arani et al., *Learning Fast, Learning Slow* (CLS-ER), ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.tensors.fields import Fields


def check_ema(ema: float, method: Method) -> None:
    """Refuse a decay that is none, and a method that cannot predict with averaged weights."""
    if not 0 <= ema < 1:
        raise SnclError(f"`ema` is 0 (off) or the part of the average that each step keeps, below 1, not {ema}")
    if ema and not method.supports_ema:
        raise SnclError(f"{type(method).__name__} stores what its network said in training: use `ema=0`")


class EMA:
    """The average of every floating-point parameter and buffer of ``net``; infinite ones, such as masks of attention,
    have none and stay as they are.

    Each update keeps ``decay`` of the average, and less at first: (1 + n) / (10 + n) in step n, so that the untrained
    network is soon forgotten.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        self.net = net
        self.live = {name: value for name, value in _floating(net).items() if bool(value.isfinite().all())}
        self.slow: Fields = {name: value.clone() for name, value in self.live.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "live"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        copied = _floating(self.net)  # tensors of the copied network, not copies of their own
        self.live = {name: copied[name] for name in self.slow}

    @torch.no_grad()
    def take_over(self, earlier: EMA) -> None:
        """Go on from the average of the same network before it grew, whatever its tensors are called now."""
        known = {value.data_ptr(): earlier.slow[name] for name, value in earlier.live.items()}
        for name, value in self.live.items():
            if value.data_ptr() in known:
                self.slow[name].copy_(known[value.data_ptr()])

    @torch.no_grad()
    def update(self, steps: int) -> None:
        """Take in the network as it is after so many steps."""
        decay = min(self.decay, (1 + steps) / (10 + steps))
        torch._foreach_lerp_(list(self.slow.values()), list(self.live.values()), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network be its average for a while."""
        live, slow = list(self.live.values()), list(self.slow.values())
        with torch.no_grad():
            kept = [value.clone() for value in live]
            torch._foreach_copy_(live, slow)
            try:
                yield
            finally:
                torch._foreach_copy_(live, kept)

    @torch.no_grad()
    def settle(self) -> None:
        """Make the network its average."""
        torch._foreach_copy_(list(self.live.values()), list(self.slow.values()))

    def load(self, values: Fields) -> None:
        """The inverse of reading ``slow``."""
        torch._foreach_copy_(list(self.slow.values()), [values[name] for name in self.slow])


def _floating(net: nn.Module) -> Fields:
    """The floating-point tensors of a network, as they lie there."""
    return {name: value for name, value in net.state_dict().items() if value.is_floating_point()}

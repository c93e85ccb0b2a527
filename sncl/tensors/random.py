"""One named generator per purpose, so that switching a part off changes no other part's numbers.

Which images come, how they are cropped, what is replayed, what the memory admits and the noise of the gates are
independent streams of numbers from one seed. Two runs that differ in one part are therefore *paired*: everything
else is equal number for number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

from sncl.tensors.fields import Fields


def generator(seed: int, *purpose: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on nothing but the seed and the purpose: ``generator(0, "order", task, epoch)``."""
    text = "/".join(str(part) for part in (seed, *purpose))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return torch.Generator(device).manual_seed(number)


GLOBAL = RLock()  # held while torch's global generators stand for another: there is one of each in a process


@contextmanager
def seeded(seed: int, *purpose: object) -> Iterator[None]:
    """Let what draws on the host from torch's global generator (initial weights) depend on these alone."""
    with GLOBAL, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator(seed, *purpose).initial_seed())
        yield


class Randomness:
    """The generators a learner keeps, with their exact state.

    ``host`` names draw small things (which slots, which crop) on the CPU, so that they are the same numbers on every
    device and cost no synchronisation; ``device`` names draw bulk noise where it is used.
    """

    def __init__(self, seed: int, host: tuple[str, ...], device: tuple[str, ...], on: torch.device) -> None:
        self.seed = seed
        self.generators = {name: generator(seed, name) for name in host}
        self.generators |= {name: generator(seed, name, device=on) for name in device}

    def __getitem__(self, name: str) -> torch.Generator:
        return self.generators[name]

    def uniform(self, name: str, *shape: int) -> Tensor:
        """Numbers in [0, 1), double precision: fine enough to index an endless stream."""
        if 0 in shape:  # of which there are none to draw
            return torch.empty(shape, dtype=torch.float64)
        return torch.rand(*shape, generator=self.generators[name], dtype=torch.float64)

    @contextmanager
    def as_global(self, name: str) -> Iterator[None]:
        """Let code that draws from torch's global generator (dropout, gates) draw from the generator of that name.

        The global generator is left as it was found, so that such a network is exact to resume as well. A CUDA graph
        captured meanwhile keeps the generator of that name for good.
        """
        ours = self.generators[name]
        with GLOBAL:
            if ours.device.type == "cuda":
                theirs = torch.cuda.default_generators[ours.device.index or 0]
                found = theirs.graphsafe_get_state()
                theirs.graphsafe_set_state(ours)
                try:
                    yield
                finally:
                    theirs.graphsafe_set_state(found)
            else:
                theirs = torch.default_generator
                before = theirs.get_state()
                theirs.set_state(ours.get_state())
                try:
                    yield
                finally:
                    ours.set_state(theirs.get_state())
                    theirs.set_state(before)

    def state(self) -> Fields:
        return {name: generator.get_state() for name, generator in self.generators.items()}

    def load(self, state: Fields) -> None:
        for name, generator in self.generators.items():
            generator.set_state(state[name].cpu())

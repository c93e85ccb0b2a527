"""What a learner does with its memory: replayed batches for a step, and behind it what the step says of them."""

from __future__ import annotations

from sncl.memory.memory import Memory
from sncl.methods.method import Method, Outcome
from sncl.tensors.fields import Fields, rows
from sncl.tensors.random import Randomness
from sncl.training.step import Draw


class Replay:
    """The memory as the steps of ``method`` use it; without a memory nothing is replayed or kept.

    ``size`` is how many samples a replayed batch has unless the method asks for another number, and ``randoms`` how
    many random numbers the transform of a sample takes.
    """

    def __init__(self, memory: Memory | None, method: Method, size: int, randoms: int, random: Randomness) -> None:
        self.memory = memory
        self.method = method
        self.size = size
        self.randoms = randoms
        self.random = random

    def draws(self) -> tuple[Draw, ...]:
        """The replayed batches of the next step, drawn on the host; none while there is nothing to replay."""
        if self.memory is None or not self.memory.drawable:
            return ()
        return tuple(self._draw(self.memory, number) for number in range(self.method.draws))

    def _draw(self, memory: Memory, number: int) -> Draw:
        wanted = self.method.replayed_rows(number, self.size)
        slots = memory.draw(wanted, self.random.uniform(f"replay {number}", memory.capacity))
        return Draw(slots, self.random.uniform(f"replay view {number}", len(slots), self.randoms))

    def is_steady(self, samples: int) -> bool:
        """Whether the steps on the next batches of so many samples replay as many as this one, as far as is known."""
        if self.memory is None:
            return True
        most = max(self.method.replayed_rows(number, self.size) for number in range(self.method.draws))
        return self.memory.drawable >= most or self.memory.drawable_after(samples) == self.memory.drawable

    def refresh(self, outcome: Outcome) -> None:
        """Behind every step: overwrite what it knows better of the samples it replayed."""
        if self.memory is not None and outcome.refresh:
            self.memory.refresh(outcome.refresh)

    def admit(self, batch: Fields, outcome: Outcome) -> None:
        """Behind the last step on a batch: offer its samples, with what the method remembers of them."""
        if self.memory is not None:
            self.memory.admit(batch | outcome.remember, self.random.uniform("admission", rows(batch), 3))

    def end_task(self, content: Fields | None) -> None:
        """A task has ended; ``content`` is what the memory holds from now on, or None for what it holds."""
        if self.memory is None:
            return
        if content is None:
            self.memory.boundary()
        else:
            self.memory.replace(content)

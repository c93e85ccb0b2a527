"""What a learner does with its memory: replayed batches for a step, and behind it what the step says of them."""

from __future__ import annotations

from functools import partial

from sncl.memory.drawing import draw_distinct
from sncl.memory.memory import Memory
from sncl.methods.method import Method, Outcome
from sncl.tensors.fields import Fields, rows
from sncl.tensors.random import Randomness
from sncl.tensors.room import require_memory
from sncl.training.step import Draw

MOST_NUMBERS = 2**16  # that are drawn for one replayed batch: one for every slot there may be
FEW_OF = 4  # slots for each one that is wanted: from there on, one is seldom drawn twice


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
        uniform, name = self.random.uniform, f"replay {number}"
        if memory.capacity <= MOST_NUMBERS:
            slots = memory.draw(wanted, uniform(name, memory.capacity))
        elif memory.drawable <= FEW_OF * wanted:
            slots = memory.draw(wanted, uniform(name, memory.drawable))
        else:
            slots = draw_distinct(wanted, memory.drawable, partial(uniform, name))
        return Draw(slots, uniform(f"replay view {number}", slots.shape[0], self.randoms))

    def make_room(self, samples: int) -> None:
        """Before so many samples are learned: take what memory they may need, or refuse what is not there."""
        if self.memory is not None and (needed := self.memory.bytes_to_reserve(samples)):
            require_memory(
                needed,
                f"the next {needed // self.memory.bytes_per_row():,} of {self.memory.capacity:,} samples in memory",
                "use a smaller `memory`",
            )
            self.memory.reserve(samples)

    def is_steady(self, samples: int) -> bool:
        """Whether the steps on the next batches of so many samples replay as many as this one, as far as is known."""
        if self.memory is None:
            return True
        drawable = self.memory.drawable
        if self.memory.drawable_after(samples) == drawable:
            return True
        return drawable >= max(self.method.replayed_rows(number, self.size) for number in range(self.method.draws))

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

"""How much of what was acknowledged may be lost, and when."""

from __future__ import annotations

import math
from typing import NamedTuple

from sncl.errors import SnclError


class Durability(NamedTuple):
    """When the journal is written through to the disk: behind so many requests to learn, and after so many seconds."""

    every: int | None = None
    seconds: float = 60.0

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.every is not None and self.every < 1:
            raise SnclError(f"`every` is at least 1 request to learn, not {self.every}")
        if not 0 < self.seconds < math.inf:
            raise SnclError(f"`seconds` between snapshots are more than 0, not {self.seconds}")

    def in_words(self) -> str:
        """What may be lost."""
        lost = f"the last {self.seconds:g} s"
        if self.every == 1:
            lost = "nothing either"
        elif self.every is not None:
            lost = f"at most {self.every - 1} requests to learn, and no more than {lost}"
        return f"kill -9 loses nothing that was acknowledged, a power failure {lost}"


USUAL = Durability()

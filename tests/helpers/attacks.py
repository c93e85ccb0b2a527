"""Programs under attack: what they leave if they are left alone, and which of their calls are attacked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from forks import Attack, Forks
from power_loss import Call, read_calls

CAMPAIGN = bool(os.environ.get("SNCL_CAMPAIGN"))  # every call; otherwise some of them
GOLDEN = (5**0.5 - 1) / 2
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT")
TRAIN = ("train", "--stream", "seq-digits", "--method", "derpp", "--memory", "20", "--device", "cpu", "--tasks", "2")
TRAIN += ("--epochs", "1", "--set", "batch_size=64", "--set", "width=16", "--checkpoint", "0", "--out")


@dataclass(frozen=True)
class Undisturbed:
    """What a program leaves in ``folder`` if it is left alone, and the calls with which it does."""

    folder: Path
    calls: list[Call]

    def attacked(self, some: int, turn: int = 0, turns: int = 1, only: str = "") -> list[int]:
        """Some of the calls, counted from 1, of all kinds and moments; all of them in a campaign.

        Tests that take turns attack different ones; ``only`` names the one kind that is wanted.
        """
        wanted = [number for number in self._in_turn() if only in ("", self.calls[number - 1].op)]
        return sorted(wanted) if CAMPAIGN else wanted[turn::turns][:some]

    def _in_turn(self) -> list[int]:
        """All calls, one of each kind after the other, and those of one kind from everywhere in the program."""
        kinds: dict[str, list[int]] = {}
        for number, call in enumerate(self.calls, 1):
            kinds.setdefault(call.op, []).append(number)
        mixed = [sorted(kind, key=lambda number: number * GOLDEN % 1) for kind in kinds.values()]
        return [number for number in chain(*zip_longest(*mixed)) if number is not None]

    def replaced(self, name: str, before: int) -> int:
        """How often a file has been replaced by the calls before one, with the folder written through to the disk."""
        done = self.calls[: before - 1]
        renames = [index for index, call in enumerate(done) if call.op == "rename" and Path(call.second).name == name]
        return sum(any(call.op == "fsync" for call in done[index + 1 :]) for index in renames)


def undisturbed(forks: Forks, folder: Path, what: str, *arguments: str | Path) -> Undisturbed:
    """Run a program to its end, and write down its calls in the folder ``home``."""
    home, record = folder / "home", folder / "record"
    home.mkdir()
    ended = forks.wait(forks.start(what, *map(str, arguments), attack=Attack(str(home), record=str(record))))
    assert ended.code == 0, ended.err
    return Undisturbed(home, read_calls(record))

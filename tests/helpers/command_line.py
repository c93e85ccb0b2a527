"""What a command of sncl printed and how it ended; the fixture ``sncl`` runs one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert (self.code, json.loads(self.out) is None) == (0, False), self.err
        return json.loads(self.out)


Sncl = Callable[..., Done]

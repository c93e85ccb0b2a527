"""What the server refuses: a status and one line that says what was wrong and what is allowed."""

from __future__ import annotations

from typing import Any

from sncl.errors import SnclError

RETRY_AFTER = 1  # seconds, where a request may be sent again as it is
NAMED = 20  # ids or labels at most that a message names


class RequestRefused(SnclError):
    """A request that changed nothing; ``more`` goes into the answer beside the error."""

    def __init__(self, status: int, message: str, more: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.more = more or {}

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says beside its body."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": str(RETRY_AFTER)} if self.status == 503 else {}


def listed(values: list[Any]) -> str:
    """Some of the values, as Python writes them."""
    shown = ", ".join(repr(value) for value in values[:NAMED])
    return shown if len(values) <= NAMED else f"{shown} and {len(values) - NAMED} more"

"""The address of a database that holds a study. Its password goes to the environment, as PostgreSQL's own programs have
it (``PGPASSWORD``), and is in nothing that is printed, written or sent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from sncl.errors import SnclError

SCHEMES = ("postgresql", "postgres")
PASSWORD = "PGPASSWORD"


@dataclass(frozen=True)
class Database:
    """A study by its name in a database; the address has no password."""

    address: str
    study: str

    def __str__(self) -> str:
        return f"{self.address} (study {self.study})"

    def for_optuna(self) -> str:
        """The same address with the driver to use."""
        return "postgresql+psycopg://" + self.address.partition("://")[2]


def is_address(text: str) -> bool:
    return "://" in text


def parse_address(text: str, study: str) -> Database:
    """The database at an address. Where there is a password in it, this process and those it starts have it from now
    on in their environment."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError as error:
        raise SnclError("`storage` is no address; it is postgresql://USER@HOST:PORT/DATABASE") from error
    if parts.scheme not in SCHEMES or not parts.path.strip("/"):
        raise SnclError(
            f"`storage` is a file or postgresql://USER@HOST:PORT/DATABASE, not an address of {parts.scheme!r}"
        )
    query = parse_qsl(parts.query, keep_blank_values=True)
    password = dict(query).get("password") or (unquote(parts.password) if parts.password else None)
    if password:
        os.environ[PASSWORD] = password
    user, at, host = parts.netloc.rpartition("@")
    place = user.partition(":")[0] + at + host
    rest = urlencode([pair for pair in query if pair[0] != "password"], safe="/")
    address = urlunsplit(("postgresql", place, parts.path, rest, ""))
    return Database(address if place else address.replace("postgresql:/", "postgresql:///", 1), study)

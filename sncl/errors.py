"""The exceptions a user is meant to read, and which name may have been meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MOST_NAMES = 4  # that are suggested at once
SHORTEST_PART = 3  # letters of a name that stand for the names they are in
ALIKE = 0.6  # of two names, as difflib counts


class SnclError(Exception):
    """Something the caller can put right: one sentence that says what was wrong and what is allowed.

    It is a single line, also where it quotes another error that is not. The command line prints it and exits with code
    2; nothing that was stored is lost.
    """

    def __str__(self) -> str:
        return " ".join(line.strip() for line in super().__str__().splitlines()).rstrip()


class BadInput(SnclError, ValueError):
    """The same where scikit-learn is spoken, which expects a ``ValueError``."""


class BadKind(SnclError, TypeError):
    """The same for a value of a type that nothing can be learned from."""


class Diverged(SnclError):
    """A run whose losses or weights are no numbers any more: its settings are to blame, not where it ran."""


class Busy(SnclError):
    """Another process is at work in the same folder."""


class Killed(SnclError):
    """A process ended before it could say what came of its work."""


def nearest(name: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> list[str]:
    """The known names that may have been meant, best first: by their letters alone, by what people call them
    (``meant``: names with blanks between them, by letters), by a part of them, or by a typing error.

    >>> nearest("DER++", ["der", "derpp"]), nearest("mnist", ["seq-mnist", "seq-digits"]), nearest("sqd", ["sgd", "er"])
    (['derpp'], ['seq-mnist'], ['sgd'])
    """
    from difflib import get_close_matches

    by_letters = {letters(each): each for each in known}
    word = letters(name)
    if word in by_letters:
        return [by_letters[word]]
    if called := [each for each in (meant or {}).get(word, "").split() if each in by_letters.values()]:
        return called
    parts = [each for key, each in by_letters.items() if word in key] if len(word) >= SHORTEST_PART else []
    return (parts or [by_letters[key] for key in get_close_matches(word, by_letters, cutoff=ALIKE)])[:MOST_NAMES]


def letters(name: str) -> str:
    """A name without what people write differently: small letters and digits, and p for plus."""
    return "".join(each for each in name.lower().replace("+", "p") if each.isalnum())


def suggestion(names: Iterable[str]) -> str:
    """A question after names that may have been meant; nothing where there are none."""
    found = " or ".join(names)
    return f"did you mean {found}? " if found else ""


def no_such(what: str, name: str, known: Iterable[str], near: Iterable[str], where: str = "`sncl list`") -> SnclError:
    """An error for a name that is not known: those that may have been meant, else all there are."""
    if question := suggestion(near):
        return SnclError(f"there is no {what} {name!r}; {question}{where} shows all")
    return SnclError(f"there is no {what} {name!r}; the known ones are {', '.join(known)}")


def lacking(what: str, *packages: str) -> SnclError:
    """An error where packages are missing that are no part of a plain installation, with the command that brings them.

    It names the packages, not an extra of sncl: ours is not the project that has this name on PyPI.
    """
    return SnclError(f"{what} needs {' and '.join(packages)}: pip install {' '.join(packages)}")

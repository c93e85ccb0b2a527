"""The exceptions a user is meant to read."""


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

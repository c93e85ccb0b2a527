"""The exceptions a user is meant to read."""


class SnclError(Exception):
    """Something the caller can put right: one sentence that says what was wrong and what is allowed.

    The command line prints it as a single line and exits with code 2; nothing that was stored is lost.
    """


class BadInput(SnclError, ValueError):
    """The same where scikit-learn is spoken, which expects a ``ValueError``."""


class Diverged(SnclError):
    """A run whose losses or weights are no numbers any more: its settings are to blame, not where it ran."""

"""The command line: ``sncl train | tune | serve | ...``; ``sncl --help`` names all commands."""

from __future__ import annotations

import sys

STOPPED = "stopped; the same command goes on from the last checkpoint"


def main() -> None:
    """Run the command line. What takes long to load is loaded here, where a signal is no traceback."""
    try:
        from sncl.training.garbage import load_lightly
        from sncl.training.stopping import end_at_once, heed_signals

        heed_signals(STOPPED)
        load_lightly()
        try:
            from sncl.cli.commands import command_line

            command_line()
        finally:
            end_at_once()
    except KeyboardInterrupt:  # before anything was loaded
        print(STOPPED, file=sys.stderr)
        sys.exit(130)

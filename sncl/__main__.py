"""``python -m sncl``."""

from sncl.cli import main

main()

"""``python -m sncl.cli``."""

from sncl.cli import main

main()

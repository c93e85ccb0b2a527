"""A run: its identity, its settings, performing it, its result, and loading it again."""

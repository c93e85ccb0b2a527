"""Experiments from Python and notebooks: run them, read them back, look at them."""

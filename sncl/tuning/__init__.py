"""Choosing settings on held-out training data."""

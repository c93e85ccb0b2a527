"""Removing the neurons that gates have closed."""

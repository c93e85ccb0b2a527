"""Continual-learning methods: each is one function of a batch, beside its equation."""

"""How fast a training step is here, beside the bare network."""

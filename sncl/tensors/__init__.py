"""Named tensors and named random generators: the ground everything stands on."""

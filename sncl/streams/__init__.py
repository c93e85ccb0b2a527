"""Data sets as streams of tasks: reading and fetching them, the order of samples, and transforms to network input."""

"""How well a network remembers: read-outs of its logits and functions of the accuracy matrix."""

"""Removing the neurons that gates have closed.

``scales`` replaces the gates of a copy by fixed factors. ``trace`` reads the operations of a forward pass,
``operations`` knows what each of them does to channels, and ``dependencies`` follows the channels from the layer that
makes them to the layers that read them; ``groups`` decides which go. ``folding`` multiplies the factors into the
weights, ``slicing`` removes rows and columns, and ``prune`` puts it together and checks the result.
"""

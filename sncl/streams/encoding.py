"""A stream over a table: each row is encoded by what it and the rows before it taught.

A task is learned as a whole, as an estimator learns what one ``partial_fit`` is given; a stream without tasks in
tenths. Rows that are only tested are encoded by what all training rows taught.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from sncl.streams.raw import Indices, RawTable, take_rows
from sncl.streams.standardisation import FIRST_PART, first_samples
from sncl.streams.stream import Stream
from sncl.tables.encoder import TableEncoder
from sncl.tensors.room import require_memory


def encode_in_order(stream: Stream, table: RawTable) -> Stream:
    """The stream with its rows encoded, and the encoder as it is after the last of them."""
    first = first_samples(stream).numpy()
    encoder = TableEncoder.of_kinds(take_rows(table.train, first), table.kinds)
    if table.numeric:
        for rows in parts(stream, first):
            encoder.update(take_rows(table.train, rows))
        return replace(stream, encoder=encoder)
    count, tested = len(stream.x), len(stream.test_x)
    needed = 2 * np.dtype(np.float64).itemsize * encoder.width * (count + tested)  # as they are, and standardised
    require_memory(needed, f"{stream.name} as {encoder.width} columns of numbers", "remove columns of texts, or rows")
    x = np.empty((count, encoder.width))
    left = np.ones(count, dtype=np.bool_)
    for rows in parts(stream, first):
        taught = take_rows(table.train, rows)
        encoder.update(taught)
        x[rows] = encoder.encode(taught)
        left[rows] = False
    others = np.flatnonzero(left)  # held out, or of a task that is not asked for
    x[others] = encoder.encode(take_rows(table.train, others))
    validated = stream.test_x is stream.x
    encoded = torch.from_numpy(x)
    test_x = encoded if validated else torch.from_numpy(encoder.encode(table.test))
    return replace(stream, x=encoded, test_x=test_x, shape=(encoder.width,), encoder=encoder)


def parts(stream: Stream, first: Indices) -> Iterator[Indices]:
    """The rows of each task or, of a stream without tasks, of each tenth."""
    if stream.sizes is None:
        yield from (phase.rows.numpy() for phase in stream.phases)
        return
    rows = stream.phases[0].rows.numpy()
    yield first
    yield from (part for part in np.array_split(rows[len(first) :], FIRST_PART - 1) if len(part))

"""Tables as people have them: read from files and data frames, and encoded as numbers, learned from the stream."""

from sncl.tables.columns import Columns
from sncl.tables.encoder import TableEncoder
from sncl.tables.frames import columns_of
from sncl.tables.reading import Table, read_columns, read_table

__all__ = ["Columns", "Table", "TableEncoder", "columns_of", "read_columns", "read_table"]

"""A finished run as one file that predicts without sncl, checked and measured.

The model in the file takes images as they lie in the dataset, uint8 [samples, channels, height, width], or numbers as
they were read, float64 [samples, columns], with any number of samples, and returns logits [samples, classes]: the
standardisation and normalisation of the stream are inside, closed neurons are not. Columns of a table that are no
numbers are encoded before; the file's metadata say how, and name the classes.
Before anything is written, the file's content is run on the test data of the run and must predict what the run's
network does.
"""

from sncl.export.account import account_table, is_busy
from sncl.export.write import account_file, export
from sncl.training.exporting.formats import choose_format

__all__ = ["account_file", "account_table", "choose_format", "export", "is_busy"]

"""A finished run as one file that predicts without sncl, checked and measured.

The model in the file takes images as they lie in the dataset, uint8 [samples, channels, height, width] with any number
of samples, and returns logits [samples, classes]: the normalisation of the stream is inside, closed neurons are not.
Before anything is written, the file's content is run on the test data of the run and must predict what the run's
network does.
"""

from sncl.export.account import account_table, is_busy
from sncl.export.formats import choose_format
from sncl.export.write import account_file, export

__all__ = ["account_file", "account_table", "choose_format", "export", "is_busy"]

"""Data sets as streams: what is shown in which order, how an image becomes network input, how the files get here."""

"""The data sets of the benchmarks: reading, fetching and decoding them."""

"""A fixed number of remembered rows, and the rules that say which rows may enter."""

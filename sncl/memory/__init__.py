"""A fixed number of remembered samples, and the rules that say which samples may enter."""

"""The user's data as a stream: image folders, arrays and tables."""

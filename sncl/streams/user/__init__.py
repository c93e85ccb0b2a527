"""The user's own data as a stream: image folders, arrays and tables."""

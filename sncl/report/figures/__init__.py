"""The figures of a report as plain data; ``script.js`` draws them."""

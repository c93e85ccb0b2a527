"""What a run predicts for new files: tables, arrays and images, with the run's own preprocessing."""

"""The learner, the loop that feeds it a stream, and what makes both survive a crash."""

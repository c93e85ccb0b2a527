"""A learner as one file that predicts without sncl: models, file formats, and the check before anything is written."""

"""Gates on the neurons of a network: where they stand, how they are trained, what is masked in evaluation."""

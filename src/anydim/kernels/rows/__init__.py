"""Element work and reductions, row by row: a group in, a launch of sweeps over rows out."""

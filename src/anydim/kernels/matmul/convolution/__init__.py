"""Products of weights with windows: a group in, a launch whose panels are windows out."""

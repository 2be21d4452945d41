"""Elementwise work and reductions, row by row: a group in, a launch of passes over rows out."""

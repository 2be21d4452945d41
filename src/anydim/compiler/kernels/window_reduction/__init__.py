"""Reductions over windows: a group in, a launch with vectors along rows of the result out."""

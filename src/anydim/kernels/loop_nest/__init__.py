"""Ordered steps: a group with loops, branches and writes of parts in, one launch out."""

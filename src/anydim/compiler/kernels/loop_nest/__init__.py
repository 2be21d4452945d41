"""Ordered loop nests: a group with loops, branches and partial writes in, one launch out."""

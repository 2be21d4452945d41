"""Ragged batches: a graph over padded rows -> a graph over rows of their own lengths.

independence   whether a node computes each index of a dim from that index alone
units          sizes of ragged axes: what they count, and how often
rows           the rewrite: nodes over all tokens, loops over rows for the others
"""

"""Ragged batches: a graph over padded rows -> a graph over rows of their own lengths.

size_values     values that sizes and masks alone determine
independence    whether a node computes each index of a dim from that index alone
groups          nodes and graphs at other sizes
placement       where each node runs: over all rows, over all tokens, in a loop over rows
row_graphs      makes the graph over rows
rows            the pass
"""

"""softmax(f(queries * keys)) * values: a group that computes it in, one launch out.

No kernel of it writes the matrix of scores.
"""

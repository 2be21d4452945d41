"""softmax(f(queries * keys)) * values: takes a group, returns one launch.

No kernel writes the matrix of scores to memory.
"""

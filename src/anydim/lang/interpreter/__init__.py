"""Runs a definition on arrays, element by element: an oracle that shares nothing with `resolve/`.

In come a surface tree and numpy arrays; out go numpy arrays. Sizes are numbers here, floats are
float64 and integers wrap at their width, so nothing is proven, folded or promoted by the code that
the compiler uses. It is slow (about a million operations per second): for small sizes.
"""

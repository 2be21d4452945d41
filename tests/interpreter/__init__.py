"""Interprets a definition on arrays, element by element: an oracle independent of `resolve/`.

Input: a surface tree and numpy arrays. Output: numpy arrays. Sizes are numbers here, floats are
float64 and integers wrap at their width, so no code of the compiler proves, folds or promotes
anything. It is slow (about a million operations per second): for small sizes.
"""

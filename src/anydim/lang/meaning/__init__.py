"""Reference semantics of a group, in numpy.

Input: a group and arrays. Output: the arrays that it computes.
"""

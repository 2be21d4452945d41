"""The meaning of a group, by numpy: what everything else is compared with.

In come a group and arrays; out go the arrays that it computes.
"""

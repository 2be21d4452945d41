"""Foundations of all packages: errors, settings, element types, immutable values, a disk cache.

In: Python and numpy only. Out: small values and functions for all other packages.
"""

"""Foundations of all packages: errors, settings, element types, immutable values, a disk cache.

Depends only on Python and numpy.
"""

"""What every room needs: errors, settings, element types, immutable values, a cache on disk.

In comes nothing but Python and numpy; out go small values and functions for all other rooms.
"""

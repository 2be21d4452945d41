"""Templates whose items work in groups and share local memory, for accelerators.

`tiles.py` has products (matrix products, convolutions), `teams.py` rows with reductions and
elements; `places.py` is what both find places with.
"""

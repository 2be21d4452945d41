"""Templates whose items work in groups and share local memory, for accelerators.

`tiles.py` has products (matrix products, convolutions), `attention.py` attention, `teams.py` rows
with reductions and elements; `places.py` is what all find places with.
"""

"""Templates whose items work in groups and share local memory, for accelerators.

`tiles.py` and `fragments.py` (by tensor cores) have products, matrix products and convolutions, by
what `products.py` knows of them and `copies.py` of the way of factors;
`library.py` has those for a library. `attention.py` has attention, `teams.py` rows with reductions
and elements; `places.py` is what all find places with.
"""

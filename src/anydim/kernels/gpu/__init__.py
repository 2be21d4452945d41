"""Templates whose items work in groups and share local memory, for accelerators.

`tiled_matmul.py` and `tensor_core_matmul.py` (by tensor cores) have products, matrix products and
convolutions, by what `gpu_matmul.py` knows of them and `shared_memory_copies.py` of the way of
factors; `library_matmul.py` has those for a library. `gpu_attention.py` has attention,
`group_rows.py` rows with reductions and elements; `group_indices.py` is what all find places with.
"""

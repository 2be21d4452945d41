"""Templates of kernels with work-groups that share local memory, for accelerators.

`tiled_matmul.py` and `tensor_core_matmul.py` (tensor cores) compute products: matrix products and
convolutions. `gpu_matmul.py` has their common part, `shared_memory_copies.py` copies factors to
local memory, and `library_matmul.py` has products by a library. `gpu_attention.py` has attention,
`group_rows.py` rows with reductions and elements; `group_indices.py` computes indices for all.
"""

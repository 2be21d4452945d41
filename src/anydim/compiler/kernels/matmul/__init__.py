"""Blocked products: a register tile of accumulators, the panels it reads, and the epilogue.

Takes groups that sum products, in any operand layout, and returns launches of kernels around a
micro-kernel that is compiled once; `accumulators.py` holds its sums. `blocked_loops.py` is the
driver: the loops of every folder but `blas` and `weight_only_quant`. What several folders use is
beside them: forms (`contraction_form.py`, `convolution_form.py`), micro-kernels of floats, the
epilogue in registers (`tile_epilogue.py`), columns of several images (`panel_columns.py`).
No folder imports from another.

    contraction/   matrix products of any layout
    convolution/   products of weights with windows of a tensor
    winograd/      convolutions with 3 x 3 windows, transformed
    blas/          matrix products by an external library
    int8/          products of integers of at most eight bits
    weight_only_quant/        matrix products with weights of 4 or 8 bits, and with
                              the matrix that data chooses for a row
"""

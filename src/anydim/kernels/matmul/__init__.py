"""Blocked products: a register tile of sums, panels that it reads, and what follows a product.

In come groups that sum products, however their operands lie; out go launches of kernels around a
micro-kernel that is compiled once, whose sums are those of `accumulators.py`. `blocked_loops.py` is
the driver, the loops of all but `blas` and `narrow`.

    contraction/   matrix products of any layout
    convolution/   products of weights with windows of a tensor
    winograd/      3 x 3 windows, transformed
    blas/          matrix products by a library that is not ours
    int8/         integers of at most eight bits
    weight_only_quant/        matrix products with weights of 4 or 8 bits
"""

"""Loop IR and the templates that turn groups of comprehensions into it.

In come groups of statements (`lang/tree`), a box and a machine; out go launches: kernels in loop IR
with sizes as formulas. Floors import only from those above them, and from files of this folder:

    ir/         loop IR: values, steps, kernels
    codegen/      what all loops are made of: values, lanes, expressions
    matmul/    blocked products: contraction, convolution, winograd, bytes
    rows/       element work and reductions, row by row
    transpose/  copies that exchange axes
    concat/     element work that differs from range to range of an axis
    attention/  scores, softmax and the weighted sum
    gpu/    groups of items that share local memory, for accelerators
    window_reduction/    reductions over windows
    loop_nest/       ordered steps
    routines/   kernels written by hand
"""

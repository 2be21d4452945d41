"""Loop IR, and the templates that lower groups of comprehensions to it.

Input: groups of statements (`lang/tree`), a box and a machine. Output: launches, kernels in loop IR
whose sizes are formulas. Folders of templates import from `ir`, `codegen`, and the files of this
folder and of `matmul`, never from each other:

    ir/         loop IR: values, steps, kernels
    codegen/    emits loops of all templates: values, lanes, expressions
    matmul/     blocked products: contraction, convolution, winograd, int8, weight-only quantization
    rows/       elementwise work and reductions, row by row
    transpose/  copies that permute axes
    concat/     elementwise work that is piecewise along an axis
    attention/  scores, softmax and the weighted sum
    gpu/        work-groups that share local memory, for accelerators
    window_reduction/    reductions over windows: pooling, depthwise convolution, stencils
    loop_nest/  ordered loop nests
    routines/   hand-written kernels
"""

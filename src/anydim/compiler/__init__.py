"""The compiler: source -> graph -> passes -> kernels -> native code.

Input: a source and options. Output: a program with its native code, for `runtime`.
`pipeline.py` lists the passes in order.

    kernels/      loop IR, and the templates that lower groups to it
    targets/      code generation for kinds of machines
    native/       host code of a program
    graph/        graphs of operators
    ops/          the operator library
    frontends/    sources to graphs
    passes/       graphs to programs
    variants/     strategies, and kernels for certain sizes
    checking/     comparison with oracles
"""

"""C text of kernels, and what compiles it: for any machine that has a C compiler.

In: loop IR with the primitives of a dialect. Out: one C file per kernel and per library, in the
compiler's vector types, and objects of them. `dialect.py` has the record of what is spelled how,
`values.py` and `steps.py` are the printer, `operations.py` the functions that a file begins with.
"""

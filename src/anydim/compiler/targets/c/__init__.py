"""C code generation and compilation, for any machine with a C compiler.

Input: loop IR with the primitives of a dialect. Output: one C file per kernel and per library, in
the compiler's vector types, and their objects. `dialect.py` has the record of a dialect's syntax,
`values.py` and `steps.py` are the printer, `operations.py` the helper functions in a file.
"""

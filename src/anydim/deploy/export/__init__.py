"""Programs for programs without Python: a folder of C, weights and an example.

In: a compiled model that is straight, and a target that makes code of it. Out: a header and a
source with the functions that a C program calls (`templates/`), the code of kernels and host as C
text or as objects, a file of constants (`weights.py`), an example and a Makefile. All symbols
begin with the name of the program (`naming.py`), so that one program may hold several.
"""

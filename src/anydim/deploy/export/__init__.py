"""Exports a program as a folder of C, weights and an example, for programs without Python.

Input: a compiled model, and a target that generates its code. Output: a header and a source with
the functions that a C program calls (`templates/`), the code of kernels and host as C text or as
objects, a file of constants (`weights.py`), an example, a Makefile and a CMakeLists.txt. Templates
in `straight/` are for programs of one segment, those in `regions/` for others, whose memory is
`arena.py`. All symbols begin with the name of the program (`naming.py`), so that one executable can
link several programs.
"""

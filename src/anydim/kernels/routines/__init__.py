"""Kernels written by hand: operators that are no comprehension, one file for each family.

    code.py, term.py    loop IR written as Python that reads like the algorithm
    keys.py, radix.py   order as unsigned integers; sorting them
"""

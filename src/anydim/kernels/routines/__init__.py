"""Kernels written by hand: operators that are no comprehension, one file for each family.

In come the types and attributes of a node; out go launches, one for each step of the algorithm.

    routine.py           what the record of a routine holds
    ir_builder.py             a kernel written as Python that reads like the algorithm
    keys.py, radix.py   order as unsigned integers; sorting them
"""

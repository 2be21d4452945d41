"""Hand-written kernels of operators that are not comprehensions, one file per family.

Input: the types and attributes of a node. Output: launches, one for each step of the algorithm.

    routine.py           the record of a routine
    ir_builder.py        builds a kernel from Python that reads like the algorithm
    keys.py, radix.py    order-preserving unsigned keys, and sorting of keys
"""

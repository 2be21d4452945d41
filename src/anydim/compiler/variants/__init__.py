"""Variants of kernels for the sites of a program: which exist, when they are compiled, which runs.

In: recipes of sites, and the sizes of their calls. Out: variants that native code selects by sizes
(`runtime/variant_tables.py`), if measured to be faster than the generic kernel. Packages import
only from those above them, and from modules of this folder:

    strategies/  options for users: which variants exist, and when they are compiled
"""

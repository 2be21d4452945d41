"""Definitions over structures -> graphs: recursion becomes loops over levels of calls.

Input: a linked definition with structure parameters. Output: a `Graph` whose inputs are arrays of
the structures' nodes (`runtime/lists.py`, `StructurePort`).
"""

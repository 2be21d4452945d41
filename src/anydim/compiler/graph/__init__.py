"""Graphs of operators: values with symbolic types, the nodes that make them, their semantics.

Input: operator records and what frontends import. Output: verified graphs for the passes.
"""

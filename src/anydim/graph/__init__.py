"""Graphs of operators: values with symbolic types, the nodes that make them, their meaning.

In come records of operators and what frontends read; out go verified graphs for the passes.
"""

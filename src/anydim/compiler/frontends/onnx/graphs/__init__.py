"""Imports graphs, functions and subgraphs of nodes.

Input: the nodes of a graph in order; output: a graph with symbolic sizes, or a list of all nodes
that could not be imported.
"""

"""Graphs, functions and graphs inside nodes while they are imported.

In come the nodes of a graph in their order; out goes a graph with symbolic sizes, or a list of all
that could not be imported.
"""

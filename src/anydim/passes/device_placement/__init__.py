"""On which device each node of a graph runs.

In come a graph, what a user says of nodes, and what devices can do and how fast; out goes the graph
with a device for each node, and why.
"""

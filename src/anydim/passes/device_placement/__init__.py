"""Device placement of the nodes of a graph.

From a graph, the user's rules and the capabilities and speeds of devices, computes the graph with a
device for each node, and the reasons.
"""

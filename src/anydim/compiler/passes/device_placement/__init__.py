"""Device placement of the nodes of a graph.

In: a graph, the user's rules, and the capabilities and speeds of devices. Out: the graph with a
device for each node, and the reasons.
"""

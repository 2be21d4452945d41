"""What the names of a model stand for: tensors, known contents, lists, options.

In come results of nodes; out go values of the graph, dims of sizes that data decides, and facts.
"""

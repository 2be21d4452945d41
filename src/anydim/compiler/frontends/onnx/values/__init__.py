"""Values that names of a model are bound to: tensors, known contents, lists, optionals.

Input: results of nodes; output: values of the graph, dims of data-dependent sizes, and facts.
"""

"""Passes: graph -> graph, then graph -> program. `pipeline.py` lists them in order.

In: graphs of operators. Out: graphs of fused groups, one kernel per group, and programs.
The subpackages, of which the first two import no pass:

    device_placement/    assigns nodes to devices
    delegate/    subgraphs that are exported to other engines
    ragged/    batches of rows of their own lengths
"""

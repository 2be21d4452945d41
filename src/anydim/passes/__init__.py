"""Passes: graph -> graph, then graph -> program. `compiler.py` lists them in order.

In come graphs of operators; out go graphs of groups that one kernel each computes, and programs.
A folder imports from no pass:

    device_placement/    on which device each node runs
    delegate/    what other engines are given
"""

"""Passes: graph -> graph, then graph -> program. `compiler.py` lists them in order.

In come graphs of operators; out go graphs of groups that one kernel each computes, and programs.
A folder imports from no pass:

    placing/    on which device each node runs
    handing/    what other engines are given
"""

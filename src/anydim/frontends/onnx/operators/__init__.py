"""The rows of the table of operators: how each operator of ONNX becomes nodes of the library.

In comes a node with what its inputs stand for (`call.py`); out go nodes, and what its results are.
Models that were learned have a folder:

    ml/     ai.onnx.ml

`table.py` has all rows; `iterations.py` and `branches.py` serve the graphs of a `Builder` too.
"""

"""The rows of the operator table: how each operator of ONNX becomes nodes of the library.

Input: a node and the values of its inputs (`call.py`); output: nodes, and the node's results.
Learned models have a folder:

    ml/     ai.onnx.ml

`table.py` has all rows; `iterations.py` and `branches.py` also serve the graphs of a `Builder`.
"""

"""Export of subgraphs to ONNX models, for other engines.

In: graphs of one subgraph each. Out: ONNX models.

`onnx_operators.py` has a row for each operator that ONNX supports, too; a node without one stays
with anydim.
"""

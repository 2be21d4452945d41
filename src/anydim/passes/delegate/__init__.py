"""Parts that other engines run: in come graphs of one part each, out go ONNX models of them.

`onnx_operators.py` has a row for each operator that ONNX has, too; a node without one stays with
anydim.
"""

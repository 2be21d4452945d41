"""Parts that other engines run: in come graphs of one part each, out go ONNX models of them.

`rows.py` has a row for each operator that ONNX has, too; a node without one stays with anydim.
"""

"""Operators that onnxruntime's optimiser, quantiser and transformer tools write into files.

Input: a node of domain com.microsoft; output: nodes of the library, as for the standard's
operators. The onnx package has no schemas for them: `record.py` defines the declarations of a row,
`table.py` has all rows, by domain and name.
"""

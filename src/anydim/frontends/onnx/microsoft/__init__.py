"""Operators that onnxruntime's optimiser, quantiser and transformer tools write into files.

In comes a node of domain com.microsoft; out go nodes of the library, as for the standard's own.
The standard's onnx package knows none of them: `record.py` says what a row holds beside its
function, `table.py` has all rows, by domain and name.
"""

"""Verification of compiled programs against oracles, at many sizes of the box.

In: a program, its source, and a function to call it. Out: a report of the oracles that answered,
the sizes, the compared results and the differences. An oracle is another implementation: onnx's
reference evaluator, onnxruntime, the evaluator of graphs. Tests pass the interpreter of the
language (`tests/interpreter/`).
"""

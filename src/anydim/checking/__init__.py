"""Verification of compiled programs against oracles, at many sizes of the box.

From a program, its source and a function to call it, produces a report: which oracle answered, at
how many sizes, what was compared, and what differs. An oracle is an independent implementation:
onnx's reference evaluator, onnxruntime, the interpreter of the language.
"""

"""Compares a compiled program with oracles, at many sizes of its box.

In come a program, what it was compiled from, and how to call it; out goes a report: which oracle
answered, at how many sizes, what was compared, and what differs. An oracle is another way to
compute the same results: onnx's reference evaluator, onnxruntime, the interpreter of the language.
"""

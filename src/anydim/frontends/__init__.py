"""Frontends: ONNX models, texts in the language and `Builder` calls become graphs.

onnx/   ONNX files
"""

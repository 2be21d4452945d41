"""Engines of others that run whole parts of a program: onnxruntime, OpenVINO.

In comes an ONNX model and where its inputs lie; out go results, where they are wanted. Nothing is
copied between: engines read and write the memory of the program.
"""

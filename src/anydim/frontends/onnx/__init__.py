"""ONNX files -> graphs.

In come a model and bounds of its dims; out goes a graph. Folders import only from those above them:

    file/        the file: protobuf, arrays, attributes
    values/      what names stand for
    operators/   a row for each operator
    graphs/      graphs, functions, graphs inside nodes
"""

from anydim.frontends.onnx.importer import import_model

__all__ = ["import_model"]

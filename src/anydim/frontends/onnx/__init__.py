"""ONNX files -> graphs.

In come a model and bounds of its dims; out goes a graph. Folders import only from those above them:

    file/        the file: protobuf, arrays, attributes
    values/      what names stand for
    operators/   a row for each operator of the standard
    microsoft/   rows of operators that onnxruntime's tools write
    graphs/      graphs, functions, graphs inside nodes
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "import_model":  # the file alone can be read without the operators
        return import_module("anydim.frontends.onnx.importer").import_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

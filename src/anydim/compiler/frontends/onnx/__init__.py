"""Imports ONNX files as graphs.

Input: a model and the bounds of its dims; output: a graph. Folders import only from those listed
above them:

    file/        the file: protobuf, arrays, attributes
    values/      the values that names are bound to
    operators/   a row for each operator of the standard
    microsoft/   rows of operators that onnxruntime's tools write
    graphs/      graphs, functions, subgraphs of nodes
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "import_model":  # lazy: reading files does not need the operators
        return import_module("anydim.compiler.frontends.onnx.importer").import_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

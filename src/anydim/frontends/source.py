"""Converts any source that a user compiles to a graph, by its kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.pages import FROM_SCIKIT_LEARN, FROM_TORCH
from anydim.frontends.builder import Builder
from anydim.frontends.custom import operators_of
from anydim.frontends.onnx.file.reading import Opened, open_model
from anydim.frontends.onnx.importer import import_foreign, import_model
from anydim.frontends.text import text_graph, text_source
from anydim.graph.nodes import Graph
from anydim.sizes import Dim

_EXPORTERS = {
    "torch": str(FROM_TORCH),
    "sklearn": str(FROM_SCIKIT_LEARN),
    "lightgbm": "onnxmltools.convert_lightgbm makes an ONNX model of it",
    "xgboost": "onnxmltools.convert_xgboost makes an ONNX model of it",
    "tensorflow": "tf2onnx.convert makes an ONNX model of it",
    "keras": "tf2onnx.convert makes an ONNX model of it",
}  # by the package of a value's type or of one of its base classes


def read(
    source: Any, dims: Mapping[str, Dim] | None = None, operators: Any = None,
    fallback: bool = False,
) -> Graph:  # fmt: skip
    """The graph of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, or a text.

    `dims` gives bounds to the named dims of an ONNX model and to the sizes of a definition in a
    text (`kernels.tc:matmul`); a Builder and a Graph declare their own. `operators` are definitions
    for operators of an ONNX model (`custom.py`). With `fallback`, onnxruntime runs the nodes that
    cannot be imported.
    """
    text = text_source(source)
    empty = isinstance(operators, (list, tuple, Mapping)) and not operators
    given = operators is not None and not empty
    if given and (text is not None or isinstance(source, (Builder, Graph))):
        raise OptionError(
            "operators were given, and the source is no ONNX model",
            "they define operators of an ONNX file; a builder takes g.call(definition, ...)",
        )
    if text is not None:
        return text_graph(text, dims)
    if isinstance(source, Builder):
        source = source.graph()
    if isinstance(source, Graph):
        if dims:
            raise OptionError(
                "dims were given for a graph that declares its own",
                "give bounds where the dims are made: g.dim('n', 0, 128)",
            )
        return source
    if _is_model(source):
        return import_model(source, dims, operators_of(operators), fallback)
    kind = type(source)
    hint = (
        "give the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, or the "
        "path of a .tc file with the name of a definition"
    )
    libraries = (each.__module__.partition(".")[0] for each in kind.__mro__)
    exporter = next((_EXPORTERS[name] for name in libraries if name in _EXPORTERS), hint)
    raise OptionError(f"cannot compile a value of type {kind.__name__}", exporter)


def opened_model(source: Any, operators: Any = None) -> Opened | None:
    """Decode an ONNX model; None for any other source.

    Raises OptionError for invalid `operators` before it opens the file.
    """
    if text_source(source) is not None or not _is_model(source):
        return None
    if operators is not None:
        operators_of(operators)
    return open_model(source)


def elsewhere(source: Any, dims: Mapping[str, Dim] | None, why: str) -> Graph | None:
    """A graph that runs a whole ONNX model in onnxruntime; None for any other source.

    Raises ModelError if onnxruntime cannot run it.
    """
    if text_source(source) is not None or isinstance(source, (Builder, Graph)):
        return None
    return import_foreign(source, dims or {}, why)


def _is_model(source: Any) -> bool:
    if isinstance(source, (str, os.PathLike, bytes, bytearray)):
        return True
    is_proto = hasattr(source, "SerializeToString") and hasattr(source, "graph")
    return is_proto or isinstance(source, Opened)

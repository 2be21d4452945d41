"""Converts any source that a user compiles to a graph, by its kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.pages import FROM_SCIKIT_LEARN, FROM_TORCH
from anydim.base.records import dataclass
from anydim.frontends.builder import Builder
from anydim.frontends.custom import operators_of
from anydim.frontends.onnx.file.reading import Opened, open_model
from anydim.frontends.onnx.importer import import_foreign, import_model
from anydim.frontends.text import text_graph, text_source
from anydim.frontends.torch_sources import is_torch
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


@dataclass(frozen=True)
class Frontend:
    """A kind of source: `accepts` recognises it, `graph` converts it.

    `graph` takes the source, bounds of dims, definitions of operators, and whether onnxruntime may
    run nodes. `takes_operators`: its nodes may be definitions.
    """

    name: str
    accepts: Callable[[Any], bool]
    graph: Callable[[Any, Mapping[str, Dim] | None, Any, bool], Graph]
    takes_operators: bool = False


def _of_text(source: Any, dims: Any, operators: Any, fallback: bool) -> Graph:
    text = text_source(source)
    assert text is not None
    return text_graph(text, dims)


def _of_graph(source: Any, dims: Any, operators: Any, fallback: bool) -> Graph:
    if dims:
        raise OptionError(
            "dims were given for a graph that declares its own",
            "give bounds where the dims are made: g.dim('n', 0, 128)",
        )
    graph: Graph = source.graph() if isinstance(source, Builder) else source
    return graph


def _of_torch(source: Any, dims: Any, operators: Any, fallback: bool) -> Graph:
    graph: Graph = import_module("anydim.frontends.torch.opening").opened(source, dims).graph
    return graph


def _of_onnx(source: Any, dims: Any, operators: Any, fallback: bool) -> Graph:
    return import_model(source, dims, operators_of(operators), fallback)


FRONTENDS = (
    Frontend("a definition", lambda source: text_source(source) is not None, _of_text),
    Frontend("a graph", lambda source: isinstance(source, (Builder, Graph)), _of_graph),
    Frontend("a program of torch", is_torch, _of_torch),
    Frontend("an ONNX model", lambda source: _is_model(source), _of_onnx, takes_operators=True),
)
"""The kinds of sources, in the order in which they are recognised."""


def frontend_of(source: Any) -> Frontend:
    """The frontend of a source; OptionError if there is none."""
    for frontend in FRONTENDS:
        if frontend.accepts(source):
            return frontend
    kind = type(source)
    hint = (
        "give the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, a "
        "torch.export.ExportedProgram, or the path of a .tc file with the name of a definition"
    )
    libraries = (each.__module__.partition(".")[0] for each in kind.__mro__)
    exporter = next((_EXPORTERS[name] for name in libraries if name in _EXPORTERS), hint)
    raise OptionError(f"cannot compile a value of type {kind.__name__}", exporter)


def read(
    source: Any, dims: Mapping[str, Dim] | None = None, operators: Any = None,
    fallback: bool = False,
) -> Graph:  # fmt: skip
    """The graph of any source: an ONNX model, a Builder, a Graph, a text, a program of torch.

    `dims` gives bounds to the named dims of an ONNX model or a program of torch, and to the sizes
    of a definition in a text (`kernels.tc:matmul`); a Builder and a Graph declare their own.
    `operators` are definitions for operators of an ONNX model (`custom.py`). With `fallback`,
    onnxruntime runs the nodes that cannot be imported.
    """
    frontend = frontend_of(source)
    empty = isinstance(operators, (list, tuple, Mapping)) and not operators
    if operators is not None and not empty and not frontend.takes_operators:
        raise OptionError(
            "operators were given, and the source is no ONNX model",
            "they define operators of an ONNX file; a builder takes g.call(definition, ...)",
        )
    return frontend.graph(source, dims, operators, fallback)


def opened_model(source: Any, operators: Any = None) -> Opened | None:
    """Decode an ONNX model; None for any other source.

    Raises OptionError for invalid `operators` before it opens the file.
    """
    if not _is_onnx(source):
        return None
    if operators is not None:
        operators_of(operators)
    return open_model(source)


def elsewhere(source: Any, dims: Mapping[str, Dim] | None, why: str) -> Graph | None:
    """A graph that runs a whole ONNX model in onnxruntime; None for any other source.

    Raises ModelError if onnxruntime cannot run it.
    """
    if not _is_onnx(source):
        return None
    return import_foreign(source, dims or {}, why)


def _is_onnx(source: Any) -> bool:
    return next((each for each in FRONTENDS if each.accepts(source)), None) is FRONTENDS[-1]


def _is_model(source: Any) -> bool:
    if isinstance(source, (str, os.PathLike, bytes, bytearray)):
        return True
    is_proto = hasattr(source, "SerializeToString") and hasattr(source, "graph")
    return is_proto or isinstance(source, Opened)

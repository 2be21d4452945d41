"""Whatever a user compiles -> graph, by the kind of thing it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.frontends.builder import Builder
from anydim.frontends.onnx.importer import import_model
from anydim.graph.nodes import Graph
from anydim.sizes import Dim


def read(source: Any, dims: Mapping[str, Dim] | None = None) -> Graph:
    """The graph of an ONNX file, its bytes, an onnx.ModelProto, a Builder or a Graph.

    `dims` gives bounds to the named dims of an ONNX model; a Builder and a Graph bring their own.
    """
    if isinstance(source, Builder):
        source = source.graph()
    if isinstance(source, Graph):
        if dims:
            raise OptionError(
                "dims were given for a graph that declares its own",
                "give bounds where the dims are made: g.dim('n', 0, 128)",
            )
        return source
    if isinstance(source, (str, os.PathLike, bytes, bytearray)) or _is_model(source):
        return import_model(source, dims)
    raise OptionError(
        f"cannot compile a {type(source).__name__}",
        "give the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder or a Graph",
    )


def _is_model(source: Any) -> bool:
    return hasattr(source, "SerializeToString") and hasattr(source, "graph")

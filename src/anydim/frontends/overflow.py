"""Sizes above their bound: an error, or memory that grows beyond the bound.

Proofs rest on bounds: code for a dim up to 128 may be wrong at 129. Dims that may grow are
therefore compiled without upper bounds; the given bounds are kept as expected sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.errors import DimError, OptionError
from anydim.base.user_values import shown
from anydim.frontends.builder import Builder
from anydim.frontends.onnx.file.dims import DimNames, input_shapes
from anydim.frontends.onnx.file.reading import open_model
from anydim.frontends.text import text_source
from anydim.graph.nodes import Graph
from anydim.sizes import Dim

ERROR, GROW = "error", "grow"


def expected_bounds(
    source: Any, dims: Mapping[str, Dim], on_overflow: str
) -> tuple[Mapping[str, Dim], dict[str, int]]:
    """The dims to compile a source for, and the upper bounds that sizes may exceed.

    Raises OptionError for an unknown mode, and for a graph whose own dims have upper bounds: it was
    built with them.
    """
    if not isinstance(on_overflow, str) or on_overflow not in (ERROR, GROW):
        raise OptionError(f"on_overflow is {shown(on_overflow)}, expected 'error' or 'grow'")
    if on_overflow == ERROR:
        return dims, {}
    expected = {name: dim.hi for name, dim in dims.items() if dim.hi not in (None, dim.lo)}
    bounds = {name: Dim(dim.lo) if name in expected else dim for name, dim in dims.items()}
    found = {name: high for name, high in expected.items() if high is not None}
    if isinstance(source, (Builder, Graph)):
        _check(source.graph() if isinstance(source, Builder) else source, dims)
        return {}, found
    return bounds, found if text_source(source) is not None else _own_names(source, dims, found)


def _own_names(source: Any, dims: Mapping[str, Dim], highs: Mapping[str, int]) -> dict[str, int]:
    """Bounds by the names that the dims of an ONNX model have in a program."""
    if not highs:
        return {}
    opened = open_model(source)
    names = DimNames(opened.name, dims)
    names.read(input_shapes(opened.proto.graph))
    owns = {name: names.find(name) for name in highs}
    return {own: highs[name] for name, own in owns.items() if isinstance(own, str)}


def _check(graph: Graph, dims: Mapping[str, Dim]) -> None:
    for dim in graph.box.dims:
        if dim.hi not in (None, dim.lo):
            raise OptionError(
                f"{graph.name}: dim '{dim.name}' has the bound {dim.hi} and cannot grow",
                f"g.dim('{dim.name}', {dim.lo}), and its bound to compile: dims={{'{dim.name}': "
                f"({dim.lo}, {dim.hi})}}",
            )
    for name in dims:
        try:
            graph.box.dim(name)
        except DimError as error:
            raise OptionError(f"dims: {graph.name}: {error.problem}", error.hint) from None

"""Graphs with caches over ragged rows, as `CachedRows` runs them."""

from __future__ import annotations

from typing import Any

from anydim.base.errors import GraphError
from anydim.base.user_values import is_auto
from anydim.compiler.frontends.growing_caches import SpareCaches
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.ragged.groups import with_fixed_sizes, with_sizes
from anydim.compiler.passes.ragged.placement import mask_inputs
from anydim.compiler.passes.ragged.rows import RaggedRows, auto_dims, known_dims
from anydim.sizes import Size


def over_rows(made: SpareCaches, ragged: Any) -> tuple[Graph, str]:
    """The graph over ragged rows of a graph with spare capacity, and the dim of its rows.

    Raises OptionError for dims that are none, GraphError for caches of unknown sizes, and
    ModelError for rows that depend on each other.
    """
    table, graph = frozenset((made.past, made.capacity)), with_fixed_sizes(made.graph)
    found = auto_dims(graph) if is_auto(ragged) else known_dims(graph, ragged)
    (rows,) = set(found.values())
    for each in made.caches:
        others = [size for size in graph.types[each.input].shape if size.symbols - {rows, *table}]
        if others:
            raise GraphError(
                f"'{graph.name}': size {others[0]} of cache '{each.input}' differs between calls",
                f"give it one value: dims={{'{others[0]}': 64}}",
            )
    whole = Size.symbol(made.past) + made.caches[0].count
    masks = dict.fromkeys(_dims_of_masks(graph, rows), whole)
    found = {name: rows for name in (*found, *sorted(table)) if name not in masks}
    graph, _ = RaggedRows(found, table).run(with_sizes(graph, masks))
    return graph, rows


def _dims_of_masks(graph: Graph, rows: str) -> set[str]:
    """The dims of masks alone: they count the past and what is new."""
    masks = mask_inputs(graph, rows, frozenset(graph.box.names) - {rows})
    others = symbols_of(graph.types[name] for name in graph.inputs if name not in masks)
    sizes = (graph.types[name].shape[1] for name in masks)
    return {str(size) for size in sizes if size.atom is not None and str(size) not in others}

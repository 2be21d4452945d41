"""Rewrites a graph over padded rows as one over ragged rows.

    x[batch, seq, width]              x[total, width], lengths[batch, 1]
    y = gelu(x @ w + b)        ->     y = gelu(x[1, total, width] @ w + b)
    z = softmax(y, axis=1)            z = for each row r: softmax(y[:, start(r) : start(r) + seq])

The result of a row is that of the original graph for a batch of this row alone, without padding.
`placement.py` says where each node of the graph for one row (batch = 1) runs, and `row_graphs.py`
makes the graph over rows.

Views of the results of other forms go inside, where kernels read through them. A node that depends
on sizes and constants alone is repeated wherever it is needed. Inputs that mark padding are ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import is_auto, short_repr
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.ragged.groups import split, with_fixed_sizes
from anydim.compiler.passes.ragged.placement import Placement
from anydim.compiler.passes.ragged.row_graphs import RowGraph


@dataclass(frozen=True)
class RaggedRows:
    """The rewrite; `dims` maps each ragged dim to the dim of its rows, "auto" finds them.

    `table` are dims whose size in each row no input has: the caller gives them with the rows.
    """

    dims: Mapping[str, str] | str
    table: frozenset[str] = frozenset()

    def run(self, graph: Graph) -> tuple[Graph, tuple[str, ...]]:
        """Return the graph over ragged rows, and notes on it.

        Raises OptionError for unknown dims, and ModelError for a graph whose rows depend on each
        other.
        """
        graph = with_fixed_sizes(graph)
        named = auto_dims(graph) if is_auto(self.dims) else known_dims(graph, self.dims)
        found = with_flat_dims(graph, named)
        (rows,) = set(found.values())
        work = Placement(split(graph), rows, tuple(found), self.table)
        return RowGraph(work.run()).run(), tuple(work.notes())


def known_dims(graph: Graph, dims: Any) -> dict[str, str]:
    """Check the dims that a user names."""
    hint = 'give the dim of rows for each ragged dim, {"seq": "batch"}, or "auto"'
    if not isinstance(dims, Mapping) or not dims:
        raise OptionError(f"ragged is {short_repr(dims)}", hint)
    for name in (*dims, *dims.values()):
        if name not in graph.box.names:
            known = graph.box.names
            raise OptionError(
                f"ragged: '{name}' is not a dim of '{graph.name}'",
                suggestion(str(name), known) or f"the dims are {quote_list(known)}",
            )
    if len(set(dims.values())) > 1 or set(dims) & set(dims.values()):
        raise OptionError("ragged: all ragged dims belong to one dim of rows", hint)
    return dict(dims)


def with_flat_dims(graph: Graph, dims: Mapping[str, str]) -> dict[str, str]:
    """Add the free dims that no input has as an axis, since rows are stored as flat elements.

    A row is flat if its first axis is not its only ragged one. In images [3, height, width] with a
    ragged width, the height is ragged, too.
    """
    found = dict(dims)
    rows = next(iter(found.values()))
    while True:
        flat, seen = set[str](), {rows, *found}
        for name in graph.inputs:
            shape = [size for size in graph.types[name].shape if str(size) != rows]
            own = [bool(size.symbols & found.keys()) for size in shape]
            if any(own[1:]):
                flat.update(*(size.symbols for size in shape))
            else:
                seen.update(map(str, shape))
        more = [name for name in graph.box.names if name in flat - seen]
        if not more:
            return found
        found.update(dict.fromkeys(more, rows))


def auto_dims(graph: Graph) -> dict[str, str]:
    """Find the dims: rows are the first axis of every input with free sizes, others are ragged."""
    kinds = [graph.types[name] for name in graph.inputs]
    free = [kind for kind in kinds if any(size.symbols for size in kind.shape)]
    first = {str(kind.shape[0]) for kind in free if kind.shape[0].symbols}
    rows = next(iter(first), "")
    if len(first) != 1 or rows not in graph.box.names:
        raise OptionError(
            f"ragged: '{graph.name}' has no dim that is the first axis of all its inputs",
            'name the dims: ragged={"seq": "batch"}',
        )
    sizes = dict.fromkeys(str(size) for kind in free for size in kind.shape[1:])
    names = [name for name in sizes if name in graph.box.names and name != rows]
    if not names:
        raise OptionError(f"ragged: the rows of '{graph.name}' have no free sizes")
    return dict.fromkeys(names, rows)

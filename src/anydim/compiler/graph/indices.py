"""Which inputs hold indices, and their valid ranges."""

from __future__ import annotations

from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.lang.tree import Cast, Group, Read, Statement
from anydim.lang.tree.bounds_checks import checks, index_tensor, size_of
from anydim.sizes import Size, minimum


def index_ranges(graph: Graph) -> dict[str, tuple[int, Size]]:
    """(0, last index) for each input that a node uses as indices, unchanged or moved or cast.

    If one input indexes several axes, the smallest counts.
    """
    inputs = {name: name for name in graph.inputs}  # value -> the input whose elements it has
    sizes: dict[str, Size] = {}
    for node in graph.nodes:
        if node.region is not None:
            continue  # the indices of a held graph are checked at run time
        group = group_of(graph, node)
        names = _values(node, group)
        for statement in group.statements:
            for _, check in checks(statement.body):
                source = inputs.get(names.get(index_tensor(check), ""))
                if source is not None:
                    size = size_of(check)
                    sizes[source] = minimum(sizes[source], size) if source in sizes else size
            moved = _moved(statement)
            if names.get(moved) in inputs:
                inputs[names[statement.target]] = inputs[names[moved]]
    return {name: (0, size - 1) for name, size in sizes.items()}


def _values(node: Node, group: Group) -> dict[str, str]:
    """Map the tensors of a group to graph values; temporaries get unique names."""
    names = {tensor.name: f"{node.outputs[0]}/{tensor.name}" for tensor in group.temporaries}
    names.update(zip((tensor.name for tensor in group.inputs), node.given))
    names.update(zip((tensor.name for tensor in group.outputs), node.outputs))
    return names


def _moved(statement: Statement) -> str:
    """The tensor whose elements a statement only moves or casts; empty for other statements."""
    body = statement.body
    while isinstance(body, Cast) and body.dtype.is_integer:
        body = body.argument
    plain = isinstance(body, Read) and body.default is None and not statement.combine
    return body.tensor if plain and isinstance(body, Read) else ""

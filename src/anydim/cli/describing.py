"""What a definition of a text takes and gives, as it is read; nothing is compiled."""

from __future__ import annotations

from anydim.base.text import count_of
from anydim.compiler.frontends.table import read
from anydim.compiler.graph.nodes import Graph


def describe_definition(source: str) -> str:
    """Lines on a definition; raises what reading it raises."""
    graph = read(source)
    weights = sum(constant.array.nbytes for constant in graph.constants.values())
    facts = [
        ("dims", [f"{graph.box}"] if graph.box.dims else ["none"]),
        ("inputs", [_spec(graph, name) for name in graph.inputs]),
        ("outputs", [_spec(graph, name) for name in graph.outputs]),
        ("weights", [f"{weights} bytes in {count_of(len(graph.constants), 'constant')}"]),
    ]
    lines = [f"{source}: {graph.name}, {count_of(len(graph.nodes), 'node')}"]
    for name, values in facts:
        lines += [f"  {name if not at else '':9} {value}" for at, value in enumerate(values)]
    return "\n".join(lines)


def _spec(graph: Graph, name: str) -> str:
    return f"{name}: {graph.types[name]}"

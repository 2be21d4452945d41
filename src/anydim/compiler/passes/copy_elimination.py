"""Elimination of nodes that only rename a value between steps.

Among comprehensions such a node costs nothing; between other steps it is a launch.

After: 'identity' nodes only make results of the outermost graph that no other node can make.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.compiler.graph.nodes import FUSED, Graph, Node

COPY = "identity"


def without_copies(graph: Graph, outermost: bool) -> Graph:
    """The graph without copy nodes; outputs of the outermost graph keep their names."""
    roots = _roots(graph)
    if not roots:
        return graph
    named = _output_names(graph, roots) if outermost else {}

    def final(name: str) -> str:
        root = roots.get(name, name)
        return named.get(root, root)

    kept = {n for n in graph.outputs if n in roots and final(n) != n} if outermost else set()
    nodes = []
    for node in graph.nodes:
        if node.outputs and node.outputs[0] in roots and node.outputs[0] not in kept:
            continue
        inputs = tuple(None if name is None else final(name) for name in node.inputs)
        outputs = tuple(named.get(name, name) for name in node.outputs)
        nodes.append(replace(node, inputs=inputs, outputs=outputs))
    results = graph.outputs if outermost else tuple(map(final, graph.outputs))
    return graph.replace(nodes=tuple(nodes), outputs=results)


def _roots(graph: Graph) -> dict[str, str]:
    """Map from each copy to its original value, through chains of copies."""
    roots: dict[str, str] = {}
    fixed = _values_of_comprehensions(graph)
    for node in graph.nodes:
        if _is_copy(graph, node) and node.outputs[0] not in fixed:
            source = node.given[0]
            roots[node.outputs[0]] = roots.get(source, source)
    return roots


def _is_copy(graph: Graph, node: Node) -> bool:
    return node.operator == COPY and graph.types[node.given[0]] == graph.types[node.outputs[0]]


def _values_of_comprehensions(graph: Graph) -> set[str]:
    """Values named in comprehensions."""
    fused = (node for node in graph.nodes if node.operator == FUSED)
    return {name for node in fused for name in (*node.given, *node.outputs)}


def _output_names(graph: Graph, roots: dict[str, str]) -> dict[str, str]:
    """Map from values to the output that copies them, whose name they take."""
    made = (
        {name for node in graph.nodes for name in node.outputs}
        - roots.keys()
        - _values_of_comprehensions(graph)
    )
    named: dict[str, str] = {}
    for name in graph.outputs:
        root = roots.get(name, name)
        if root != name and root in made and root not in graph.outputs and root not in named:
            named[root] = name
    return named

"""Makes a failing case small: fewer sizes, outputs, nodes and inputs, as long as it fails alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from anydim.base.errors import UserError
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.verify import verify
from tests.fuzz.case import Case
from tests.fuzz.judge import Failure
from tests.fuzz.maker import Domain
from tests.fuzz.points import shown

Judge = Callable[[Case], Failure | None]


def shrink(case: Case, failure: Failure, judge: Judge) -> tuple[Case, Failure]:
    """The smallest case found that fails in the same way, after at most 250 trials."""
    return smallest(case, failure, judge, candidates, 250)


def smallest(
    case: Any, failure: Any, judge: Callable[[Any], Any],
    candidates: Callable[[Any], Iterator[Any]], most: int,
) -> tuple[Any, Any]:  # fmt: skip
    """The smallest case whose failure has the same family, after at most `most` trials."""
    trials = 0
    changed = True
    while changed:
        changed = False
        for smaller in candidates(case):
            trials += 1
            if trials > most:
                return case, failure
            found = judge(smaller)
            if found is not None and found.family == failure.family:
                case, failure, changed = smaller, found, True
                break
    return case, failure


def candidates(case: Case) -> Iterator[Case]:
    """Cases a step smaller, the boldest first."""
    if case.threads > 1:
        yield replace(case, threads=1, eager=False)
    if case.crowd:
        yield replace(case, crowd=False)
    if case.specials:
        yield replace(case, specials=False)
    if len(case.points) > 1:
        yield from (replace(case, points=(point,)) for point in case.points)
    given = shown(case.graph)
    for graph in graphs(case.graph):
        if any(dim not in given for dim in shown(graph)):
            continue  # a size that data decided would be an input's
        try:
            yield replace(case, graph=verify(graph), domains=domains(case, graph))
        except UserError:
            continue
    if len(case.points) > 1:
        for number in range(len(case.points)):
            yield replace(case, points=case.points[:number] + case.points[number + 1 :])
    else:
        yield from (replace(case, points=(point,)) for point in lower(case))


def lower(case: Case) -> Iterator[dict[str, int]]:
    point = case.points[0]
    for dim in shown(case.graph):
        value = point[dim.name]
        for less in (dim.lo, 1, 2, value // 2, value - 1):
            if dim.lo <= less < value:
                yield {**point, dim.name: less}


def domains(case: Case, graph: Graph) -> Mapping[str, Domain]:
    """What inputs hold; values that became inputs hold what is common for their type."""
    kinds = {"bool": Domain("bool"), "float": Domain("normal")}
    return {
        name: case.domains.get(name, kinds.get(graph.types[name].dtype.kind, Domain("small")))
        for name in graph.inputs
    }


def graphs(graph: Graph) -> Iterator[Graph]:
    """Graphs with less in them."""
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield pruned(graph.replace(outputs=(name,)))
        for name in graph.outputs:
            rest = tuple(n for n in graph.outputs if n != name)
            yield pruned(graph.replace(outputs=rest))
    making = [node for node in graph.nodes if node.outputs]
    for node in making[:-1]:
        if len(graph.outputs) == 1:
            yield pruned(graph.replace(outputs=node.outputs[:1]))
    for node in making:
        yield cut(graph, node)
    for node in making:
        yield from bypassed(graph, node)
    for name in graph.inputs:
        if name not in graph.consumers and name not in graph.outputs and len(graph.inputs) > 1:
            yield graph.replace(inputs=tuple(n for n in graph.inputs if n != name)).pruned()
    unused = [dim for dim in graph.box.dims if dim not in shown(graph)]
    if unused and not graph.box.constraints:
        dims = tuple(dim for dim in graph.box.dims if dim not in unused)
        yield graph.replace(box=replace(graph.box, dims=dims))


def pruned(graph: Graph) -> Graph:
    return graph.pruned()


def cut(graph: Graph, node: Node) -> Graph:
    """What a node makes is an input instead."""
    nodes = tuple(other for other in graph.nodes if other is not node)
    made = tuple(name for name in node.outputs if name in graph.consumers)
    return graph.replace(nodes=nodes, inputs=(*graph.inputs, *made)).pruned()


def bypassed(graph: Graph, node: Node) -> Iterator[Graph]:
    """A node's input of the same type stands for its result."""
    result = node.outputs[0]
    if result in graph.outputs:
        return
    for name in dict.fromkeys(node.given):
        if graph.types[name] != graph.types[result]:
            continue
        nodes = tuple(
            replace(n, inputs=tuple(name if i == result else i for i in n.inputs))
            for n in graph.nodes
            if n is not node
        )
        yield graph.replace(nodes=nodes).pruned()

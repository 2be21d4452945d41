"""The graph verifier: the invariants that passes rely on, checked after each pass in tests."""

from __future__ import annotations

from typing import NoReturn

from anydim.base.errors import GraphError
from anydim.compiler.graph.dims import symbols_of, uses
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import LoopRegion, Sizes
from anydim.compiler.graph.verify_regions import check_region
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.stepping import written_tensors
from anydim.sizes import Truth, prove


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed, else raise a GraphError that names the node.

    Every value is defined once and before its use and has a type over the box's dims; constants
    have the type of their array; each node makes the types that its operator (or group) infers.
    Dims are known before a node needs them, and held graphs are well formed in their context.
    """
    _check_types(graph)
    _verify(graph, frozenset(graph.box.names) - graph.origins.all_found)
    return graph


def _check_types(graph: Graph) -> None:
    """Check that every value has a type, in held graphs too: `Graph.origins` reads them."""
    for name in (*graph.inputs, *graph.constants):
        if name not in graph.types:
            raise GraphError(f"graph '{graph.name}': value '{name}' has no type")
    for node in graph.nodes:
        for name in node.outputs:
            if name not in graph.types:
                _fail(graph, node, f"value '{name}' has no type")
        for held in () if node.region is None else node.region.held.values():
            _check_types(held)
    for name in graph.outputs:
        if name not in graph.types:
            raise GraphError(f"graph '{graph.name}': output '{name}' is not defined")


def _verify(graph: Graph, known: frozenset[str]) -> None:
    """Verify a graph; `known` are the dims that are known before it runs."""
    defined = _given_values(graph)
    known |= symbols_of(graph.types[name] for name in graph.inputs)
    for node in graph.nodes:
        for name in node.given:
            if name not in defined:
                _fail(graph, node, f"reads '{name}', which is not defined before it")
        missing = sorted(uses(node) - known)
        if missing:
            _fail(graph, node, f"needs the dim '{missing[0]}', which is not known before it")
        made = _made(graph, node, known)
        for name, kind in zip(node.outputs, made):
            if name in defined:
                _fail(graph, node, f"defines '{name}', which is defined already")
            declared = graph.types[name]
            if not _same(declared, kind, graph):
                _fail(graph, node, f"makes '{name}' as {kind}, but it is declared {declared}")
            defined.add(name)
        known |= _defined_dims(graph, node, known)
    for name in graph.outputs:
        if name not in defined:
            raise GraphError(f"graph '{graph.name}': output '{name}' is not defined")
    _check_symbols(graph)


def _defined_dims(graph: Graph, node: Node, known: frozenset[str]) -> frozenset[str]:
    """The dims that a node defines."""
    if node.region is None:
        made = symbols_of(graph.types[name] for name in node.outputs)
        for name in sorted(made - known):
            _fail(graph, node, f"makes a size of the dim '{name}', which is not known before it")
    if isinstance(node.region, Sizes):
        for name in node.region.dims:
            if name in known or name not in graph.box.names:
                problem = "is known already" if name in known else "is not a dim of the graph"
                _fail(graph, node, f"finds the dim '{name}', which {problem}")
        return frozenset(node.region.dims)
    return symbols_of(graph.types[name] for name in node.outputs)


def _given_values(graph: Graph) -> set[str]:
    given: set[str] = set()
    for name in (*graph.inputs, *graph.constants):
        if name in given:
            raise GraphError(f"graph '{graph.name}': '{name}' is defined twice")
        given.add(name)
    for name, constant in graph.constants.items():
        if constant.type != graph.types[name]:
            raise GraphError(
                f"graph '{graph.name}': constant '{name}' is {constant.type}, "
                f"but it is declared {graph.types[name]}"
            )
    return given


def _made(graph: Graph, node: Node, known: frozenset[str]) -> tuple[TensorType, ...]:
    if node.operator == FUSED:
        return _made_by_group(graph, node, node.group)
    if node.region is not None:
        declared = [graph.types[name] for name in node.outputs]
        given = [graph.types[name] for name in node.given]
        try:
            check_region(node.region, given, declared, graph.box, known)
            for held in node.region.held.values():
                own = {node.region.counter} if isinstance(node.region, LoopRegion) else frozenset()
                _verify(held, known | own)
        except GraphError as error:
            _fail(graph, node, error.problem)
        return tuple(declared)
    try:
        given = [graph.types[name] for name in node.given]
        made = operator(node.operator).infer(given, node.attributes, graph.box)
    except GraphError as error:
        _fail(graph, node, error.problem)
    if len(made) != len(node.outputs):
        _fail(graph, node, f"has {len(node.outputs)} results, its operator makes {len(made)}")
    return made


def _made_by_group(graph: Graph, node: Node, group: Group) -> tuple[TensorType, ...]:
    """The types of a group's results; its tensors are the graph's values, by name."""
    if tuple(tensor.name for tensor in group.inputs) != node.inputs:
        _fail(graph, node, "its inputs differ from its group's")
    if tuple(tensor.name for tensor in group.outputs) != node.outputs:
        _fail(graph, node, "its results differ from its group's")
    known = {tensor.name for tensor in group.inputs}
    for tensor in group.inputs:
        declared = graph.types[tensor.name]
        if not _same(declared, tensor.type, graph):
            _fail(graph, node, f"reads '{tensor.name}' as {tensor.type}, but it is {declared}")
    for statement in group.statements:
        for read in reads(statement.body):
            if read.tensor not in known:
                _fail(graph, node, f"statement of '{statement.target}' reads '{read.tensor}' early")
        if statement.target in known:
            _fail(graph, node, f"writes '{statement.target}' twice")
        known.add(statement.target)
    known |= written_tensors(group.steps)
    missing = [tensor.name for tensor in group.outputs if tensor.name not in known]
    if missing:
        _fail(graph, node, f"no statement writes '{missing[0]}'")
    return tuple(tensor.type for tensor in group.outputs)


def _same(left: TensorType, right: TensorType, graph: Graph) -> bool:
    """Whether types are equal; shapes that only a guard can equate pass."""
    if left == right:
        return True
    if left.dtype != right.dtype or left.rank != right.rank:
        return False
    pairs = zip(left.shape, right.shape)
    return all(prove(a, "==", b, graph.box) is not Truth.REFUTED for a, b in pairs)


def _check_symbols(graph: Graph) -> None:
    dims = set(graph.box.names)
    for name, kind in graph.types.items():
        for size in kind.shape:
            unknown = sorted(size.symbols - dims)
            if unknown:
                raise GraphError(
                    f"graph '{graph.name}': the shape of '{name}', {kind}, uses "
                    f"'{unknown[0]}', which is not a dim"
                )


def _fail(graph: Graph, node: Node, problem: str) -> NoReturn:
    raise GraphError(f"graph '{graph.name}', {node.where()}: {problem}")

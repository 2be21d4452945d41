"""Checks between a node that holds graphs and those graphs: counts, types and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim.base.dtypes import boolean, int64
from anydim.base.errors import GraphError
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import (
    BranchRegion,
    Foreign,
    LoopRegion,
    PartRegion,
    Region,
    Sizes,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, Truth, as_size, maximum, product, prove

Types = Sequence[TensorType]
_CONDITION = TensorType(boolean, ())


def check_region(
    region: Region, given: Types, made: Types, box: Box, known: frozenset[str]
) -> None:
    """Raise GraphError where the inputs or results of a node do not fit its region.

    `box` is the box of the node's graph and `known` the dims known before the node.
    """
    for graph in region.held.values():
        _same_dims(graph, box, known)
    if isinstance(region, Foreign):
        if len(given) != len(region.inputs) or len(made) != len(region.outputs):
            raise GraphError("its model has other inputs or results than the node")
    elif isinstance(region, Sizes):
        _check_sizes(region, given, made, box)
    elif isinstance(region, PartRegion):
        _check_part(region, given, made, box)
    elif isinstance(region, BranchRegion):
        if region.condition is None:
            given = _condition(given)
        for graph in (region.then, region.otherwise):
            _match("input", given, _types(graph, graph.inputs), box, known)
            _match("result", made, _types(graph, graph.outputs), box, known)
    elif isinstance(region, LoopRegion):
        _check_loop(region, given, made, box, known)
    else:
        _match("input", given, _types(region.body, region.body.inputs), box, known)
        _match("result", made, _types(region.body, region.body.outputs), box, known)


def _same_dims(graph: Graph, box: Box, known: frozenset[str]) -> None:
    """Check that a dim known around a graph is the same dim in it."""
    for dim in graph.box.dims:
        if dim.name in known and dim.name in box.names and box.dim(dim.name) != dim:
            raise GraphError(f"'{graph.name}' has the dim {dim}, around it {box.dim(dim.name)}")


def _check_sizes(region: Sizes, given: Types, made: Types, box: Box) -> None:
    count = len(region.dims)
    if region.row is not None:
        table = given[0] if len(given) == 1 and not made else None
        if table is None or table.dtype != int64 or table.rank != 2 or table.shape[1] != count:
            raise GraphError(f"takes a table int64[rows, {count}] and has no results")
        inside = (prove(0, "<=", region.row, box), prove(region.row, "<", table.shape[0], box))
        if inside != (Truth.PROVED, Truth.PROVED):
            raise GraphError(f"row {region.row} may be outside of the {table.shape[0]} rows")
        return
    shapes = [(as_size(count),), ()] if count == 1 else [(as_size(count),)]
    if made or len(given) != 1 or given[0].dtype != int64 or given[0].shape not in shapes:
        raise GraphError(f"takes int64[{count}] and has no results")


def _check_part(region: PartRegion, given: Types, made: Types, box: Box) -> None:
    if len(given) != 1 or len(made) != 1 or given[0].dtype != made[0].dtype:
        raise GraphError("takes a tensor and makes one of its element type")
    whole, end = product(given[0].shape), region.first + product(made[0].shape)
    inside = (prove(0, "<=", region.first, box), prove(end, "<=", whole, box))
    if inside != (Truth.PROVED, Truth.PROVED):
        raise GraphError(f"elements {region.first} to {end} may be outside of {given[0]}")


def _condition(given: Types) -> Types:
    if not given or given[0] != _CONDITION:
        raise GraphError(f"its first input is {given[0] if given else 'missing'}, expected bool[]")
    return given[1:]


def _check_loop(
    loop: LoopRegion, given: Types, made: Types, box: Box, known: frozenset[str]
) -> None:
    body = loop.body
    if loop.conditional:
        given = _condition(given)
    if loop.carried > len(given) or loop.counter not in body.box.names or loop.counter in known:
        raise GraphError("its carried values or its counter do not fit")
    inputs: Types = _types(body, body.inputs)
    results: Types = _types(body, body.outputs)
    if loop.conditional:
        results = _condition(results)
    carried, initials = inputs[: loop.carried], given[loop.carried :][: loop.initials]
    first = {loop.counter: as_size(0)}
    _match("carried value", given[: loop.carried], carried, box, known, first)
    following = {loop.counter: Size.symbol(loop.counter) + 1}
    inside = known | {loop.counter}
    _match("carried value", _at(carried, following), results[: loop.carried], body.box, inside)
    last = None if loop.trips is None or loop.conditional else maximum(loop.trips, 0)
    if last is not None:
        _match("result", made[: loop.carried], carried, box, known, {loop.counter: last})
    stacks, slices = made[loop.carried :], results[loop.carried :]
    if not len(stacks) == len(slices) == len(loop.scans):
        raise GraphError(f"{len(loop.scans)} stacked results, {len(slices)} slices in its body")
    for stack, made_slice, scan in zip(stacks, slices, loop.scans):
        own = made_slice.shape[1:] if scan.joined else made_slice.shape
        if scan.joined and scan.extent is None:
            raise GraphError("a concatenated result has an extent")
        rows = [TensorType(stack.dtype, stack.shape[1:])]
        _match("stacked result", rows, [TensorType(made_slice.dtype, own)], box, known)
    with_initial = [s for s, scan in zip(stacks, loop.scans) if scan.initial]
    _match("start of a stacked result", initials, with_initial, box, known)
    with_history = [s for s, scan in zip(stacks, loop.scans) if scan.history]
    histories = inputs[loop.carried :][: loop.histories]
    _match("history", with_history, histories, box, known)
    rest = given[loop.carried + loop.initials :]
    _match("input", rest, inputs[loop.carried + loop.histories :], box, known)


def _types(graph: Graph, names: Sequence[str]) -> list[TensorType]:
    return [graph.types[name] for name in names]


def _at(kinds: Types, values: Mapping[str, Size]) -> list[TensorType]:
    return [TensorType(k.dtype, tuple(s.substitute(values) for s in k.shape)) for k in kinds]


def _match(
    what: str, outer: Types, inner: Types, box: Box, known: frozenset[str],
    values: Mapping[str, Size] | None = None,
) -> None:  # fmt: skip
    """Check that outer and inner types agree, as far as their sizes use dims known here."""
    if len(outer) != len(inner):
        raise GraphError(f"{len(outer)} values around it and {len(inner)} inside as {what}")
    for position, (left, right) in enumerate(zip(outer, _at(inner, values or {}))):
        pairs = [
            (a, b) for a, b in zip(left.shape, right.shape) if (a.symbols | b.symbols) <= known
        ]
        fits = left.dtype == right.dtype and left.rank == right.rank
        if not fits or any(prove(a, "==", b, box) is Truth.REFUTED for a, b in pairs):
            raise GraphError(f"{what} {position} is {left} around it and {right} inside")

"""Nodes and graphs at other sizes: of one row, over the tokens of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import Operator, operator
from anydim.compiler.graph.regions import BranchRegion, CallRegion, LoopRegion
from anydim.compiler.passes.flow import fused_node, group_of, unique_name
from anydim.lang.tree import Group, Statement, Tensor, TensorType
from anydim.lang.tree.renaming import rename_steps, replace_sizes
from anydim.sizes import Box, Guard, Size, as_size


def record_of(node: Node) -> Operator | None:
    """The record of a node's operator; None for a node that holds comprehensions or graphs."""
    return None if node.operator == FUSED or node.region is not None else operator(node.operator)


def split(graph: Graph) -> Graph:
    """Give each statement of a definition's node a node of its own."""
    if all(node.operator != FUSED for node in graph.nodes):
        return graph
    types, nodes, guards = dict(graph.types), [], list(graph.guards)
    for node in graph.nodes:
        if node.operator != FUSED or len(node.group.statements) < 2:
            nodes.append(node)
            continue
        group, names = node.group, {}
        for tensor in group.temporaries:
            names[tensor.name] = unique_name(f"{node.outputs[0]}/{tensor.name}", types)
            types[names[tensor.name]] = tensor.type
        guards += [guard for guard in group.guards if guard not in guards]
        for step in rename_steps(group.statements, names):
            assert isinstance(step, Statement)
            made = fused_node(group_of([step], types, [step.target]), node.source, node.device)
            nodes.append(made)
    return graph.replace(nodes=tuple(nodes), types=FrozenMapping(types), guards=tuple(guards))


def with_values(node: Node, inputs: Sequence[str | None], outputs: Sequence[str]) -> Node:
    """The node with other names of its values."""
    made = replace(node, inputs=tuple(inputs), outputs=tuple(outputs))
    if node.operator != FUSED:
        return made
    names = {old: new for old, new in zip(node.inputs, inputs) if old is not None and new}
    names |= dict(zip(node.outputs, outputs))
    group = node.group

    def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(Tensor(names.get(tensor.name, tensor.name), tensor.type) for tensor in old)

    statements = [
        step for step in rename_steps(group.statements, names) if isinstance(step, Statement)
    ]
    own = replace(
        group, inputs=tensors(group.inputs), outputs=tensors(group.outputs),
        statements=tuple(statements), steps=rename_steps(group.steps, names),
    )  # fmt: skip
    return replace(made, attributes=FrozenMapping({**node.attributes, "group": own}))


def group_at(group: Group, env: Mapping[str, int | Size]) -> Group:
    """The group with sizes substituted."""
    sizes = {name: as_size(value) for name, value in env.items()}

    def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(t.name, TensorType(t.type.dtype, tuple(s.substitute(env) for s in t.type.shape)))
            for t in old
        )

    def guard(held: Guard) -> Guard:
        return replace(held, left=held.left.substitute(env), right=held.right.substitute(env))

    statements = rename_steps(group.statements, {}, sizes)
    return Group(
        tensors(group.inputs), tensors(group.outputs),
        tuple(step for step in statements if isinstance(step, Statement)),
        tensors(group.temporaries), tuple(map(guard, group.guards)),
        rename_steps(group.steps, {}, sizes),
    )  # fmt: skip


def group_with(group: Group, change: Callable[[Size], Size], dims: frozenset[str]) -> Group | None:
    """The group without steps with sizes changed; None if its guards depend on `dims`."""
    if group.steps or symbols_of(group.guards) & dims:
        return None
    return replace(replace_sizes(replace(group, guards=()), change), guards=group.guards)


# ---- sizes ---------------------------------------------------------------------------------------


class Unsuited(Exception):
    """A size that has no meaning over all tokens."""


def with_fixed_sizes(graph: Graph) -> Graph:
    """The graph with numbers for dims of one size: elements of rows then count whole units."""
    fixed = {dim.name: dim.lo for dim in graph.box.dims if dim.lo == dim.hi}
    return _substitute_sizes(graph, fixed) if fixed else graph


def at_one_row(graph: Graph, rows: str) -> Graph:
    """The graph for a batch of one row."""
    return _substitute_sizes(graph, {rows: 1}, keep=graph.box.names)


def with_sizes(graph: Graph, sizes: Mapping[str, Size]) -> Graph:
    """The graph with expressions over its other dims for some dims."""
    return _substitute_sizes(graph, sizes)


def _substitute_sizes(
    graph: Graph, env: Mapping[str, int | Size], keep: Iterable[str] = ()
) -> Graph:
    def value(held: Any) -> Any:
        if isinstance(held, Size):
            return held.substitute(env)
        if isinstance(held, tuple) and type(held) is tuple:
            return tuple(map(value, held))
        if isinstance(held, TensorType):
            return TensorType(held.dtype, value(held.shape))
        if isinstance(held, Guard):
            return replace(held, left=value(held.left), right=value(held.right))
        if isinstance(held, Group):
            return group_at(held, env)
        if isinstance(held, (BranchRegion, CallRegion, LoopRegion)):
            return region(held)
        return held

    def region(held: Any) -> Any:
        if isinstance(held, BranchRegion):
            condition = None if held.condition is None else value(held.condition)
            then, otherwise = (_substitute_sizes(each, env) for each in (held.then, held.otherwise))
            return BranchRegion(then, otherwise, condition)
        body = _substitute_sizes(held.body, env)
        if isinstance(held, CallRegion):
            return CallRegion(body)
        scans = tuple(
            replace(s, position=value(s.position),
                    extent=None if s.extent is None else value(s.extent))
            for s in held.scans
        )  # fmt: skip
        trips = None if held.trips is None else value(held.trips)
        return replace(held, body=body, trips=trips, scans=scans)

    gone = [name for name in env if name in graph.box.names and name not in keep]
    box = Box(
        tuple(dim for dim in graph.box.dims if dim.name not in gone),
        tuple(map(value, graph.box.constraints)),
    )
    return graph.replace(
        box=box,
        types=FrozenMapping({name: value(kind) for name, kind in graph.types.items()}),
        nodes=tuple(
            replace(node, attributes=FrozenMapping(
                {key: value(each) for key, each in _explicit(node, graph).items()}
            ))
            for node in graph.nodes
        ),
        guards=tuple(map(value, graph.guards)),
    )  # fmt: skip


def _explicit(node: Node, graph: Graph) -> Mapping[str, Any]:
    """The attributes of a node; a squeeze of all axes of size 1 names them, as others become 1."""
    if node.operator != "squeeze" or node.attributes.get("axes") is not None:
        return node.attributes
    shape = graph.types[node.given[0]].shape
    axes = tuple(axis for axis, size in enumerate(shape) if size.constant == 1)
    return {**node.attributes, "axes": axes}


def over_tokens(node: Node, unit: Size, total: Size, dims: frozenset[str]) -> Node:
    """The node over all tokens; raises Unsuited if an attribute is no multiple of `unit`."""

    def value(held: Any) -> Any:
        if isinstance(held, Size):
            return over(held, unit, total, dims)
        if isinstance(held, tuple) and type(held) is tuple:
            return tuple(map(value, held))
        if isinstance(held, Group):
            made = group_with(held, value, dims)
            if made is None:
                raise Unsuited
            return made
        return held

    attributes = {key: value(each) for key, each in node.attributes.items()}
    return replace(node, attributes=FrozenMapping(attributes))


def over(size: Size, unit: Size, total: Size, dims: frozenset[str]) -> Size:
    if not size.symbols & dims:
        return size
    count = size.divide_exactly(unit)
    if count is None or count.symbols & dims:
        raise Unsuited
    return total * count

"""Nodes that hold comprehensions, in graphs over rows: split, renamed, at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anydim.base.frozen import FrozenMapping
from anydim.graph.dims import symbols_of
from anydim.graph.nodes import FUSED, Graph, Node
from anydim.graph.operator import Operator, operator
from anydim.lang.tree import Group, Statement, Tensor, TensorType
from anydim.lang.tree.renaming import renamed, resized
from anydim.passes.flow import fused_node, group_of, unused
from anydim.sizes import Guard, Size, as_size


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
            names[tensor.name] = unused(f"{node.outputs[0]}/{tensor.name}", types)
            types[names[tensor.name]] = tensor.type
        guards += [guard for guard in group.guards if guard not in guards]
        for step in renamed(group.statements, names):
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

    statements = [step for step in renamed(group.statements, names) if isinstance(step, Statement)]
    own = replace(
        group, inputs=tensors(group.inputs), outputs=tensors(group.outputs),
        statements=tuple(statements), steps=renamed(group.steps, names),
    )  # fmt: skip
    return replace(made, attributes=FrozenMapping({**node.attributes, "group": own}))


def group_at(group: Group, env: Mapping[str, int]) -> Group:
    """The group with sizes substituted."""
    sizes = {name: as_size(value) for name, value in env.items()}

    def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(t.name, TensorType(t.type.dtype, tuple(s.substitute(env) for s in t.type.shape)))
            for t in old
        )

    def guard(held: Guard) -> Guard:
        return replace(held, left=held.left.substitute(env), right=held.right.substitute(env))

    statements = renamed(group.statements, {}, sizes)
    return Group(
        tensors(group.inputs), tensors(group.outputs),
        tuple(step for step in statements if isinstance(step, Statement)),
        tensors(group.temporaries), tuple(map(guard, group.guards)),
        renamed(group.steps, {}, sizes),
    )  # fmt: skip


def group_with(group: Group, change: Callable[[Size], Size], dims: frozenset[str]) -> Group | None:
    """The group without steps with sizes changed; None if its guards depend on `dims`."""
    if group.steps or symbols_of(group.guards) & dims:
        return None
    return replace(resized(replace(group, guards=()), change), guards=group.guards)

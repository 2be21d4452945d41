"""Imports nodes whose results have different ranks for different sizes.

A relation between sizes decides the rank: `n == 1` for a Squeeze without axes. The node becomes an
If on this relation, unless it is an If. The nodes after it are moved into its branches, a few more
each time, until both branches have results of the same ranks:

    y = If(c) { x } else { Squeeze(x) }          rank 3 or 2
    z = Relu(y)                                  rank 3 or 2
    s = ReduceMean(z, all axes)                  equal again

becomes s = If(c) { ReduceMean(Relu(x)) } else { ReduceMean(Relu(Squeeze(x))) }. Nodes that do not
depend on the If stay where they are. If no nodes remain, the enclosing graph has results of
different ranks in turn; at the top they leave the branches as elements and shape (`flat_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anydim.base.errors import ModelError
from anydim.compiler.frontends.onnx.file.order import names_read
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.graphs.subgraphs import Emission
from anydim.compiler.frontends.onnx.operators.relations import Unlike
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Known, Ranked
from anydim.compiler.frontends.onnx.values.emitter import Emitter, Relation

BRANCHES = {"then_branch": True, "else_branch": False}
_BOOL, _INT64 = 9, 7  # TensorProto.DataType
_TENSOR, _GRAPH = 4, 5  # AttributeProto.AttributeType
Numbered = tuple[int, Any]  # a node, and its index in its graph


def follow_of(
    numbered: Numbered,
    remaining: Sequence[Numbered],
    results: Collection[str],
    name: str,
    count: int,
) -> list[Numbered]:
    """Move the first `count` nodes that depend on an If into its branches.

    Returns the nodes that replace the If and `remaining`; empty if none depends on the If.
    `results` are those of the graph; the new If is called `name`.
    """
    position, proto = numbered
    moved = _dependent(proto, [node for _, node in remaining])[:count]
    if not moved:
        return []
    tail = [remaining[index][1] for index in moved]
    before = [remaining[index] for index in range(moved[-1]) if index not in moved]
    after = list(remaining[moved[-1] + 1 :])
    read = {*results, *(name for name in names_read(node for _, node in (*before, *after)))}
    own = type(proto)()
    own.CopyFrom(proto)
    own.name = name
    del own.output[:]
    own.output.extend(n for node in (proto, *tail) for n in node.output if n in read)
    for attribute in own.attribute:
        if attribute.name in BRANCHES:
            _extend(attribute.g, proto, tail, own.output, BRANCHES[attribute.name])
    return [*before, (position, own), *after]


def split_of(proto: Any, condition: str, name: str) -> Any:
    """An If on a condition with the same node in both branches."""
    own = type(proto)(op_type="If", name=name, input=[condition], output=proto.output)
    for taken in BRANCHES:
        branch = own.attribute.add(name=taken, type=_GRAPH).g
        branch.name = name
        branch.node.add().CopyFrom(proto)
        for result in filter(None, proto.output):
            branch.output.add().name = result
    return own


def flat_of(proto: Any, parts: Mapping[str, tuple[str, str]]) -> Any:
    """An If whose named results become two: all elements [count], and the shape [rank]."""
    tail = []
    for name, (elements, shape) in parts.items():
        flat = type(proto)(op_type="Constant", output=[f"{elements}/flat"])
        tensor = flat.attribute.add(name="value", type=_TENSOR).t
        tensor.data_type, tensor.dims[:], tensor.int64_data[:] = _INT64, [1], [-1]
        tail.append(flat)
        reshape = ["Reshape", name, flat.output[0]]
        for (operator, *inputs), result in ((reshape, elements), (("Shape", name), shape)):
            tail.append(type(proto)(op_type=operator, input=inputs, output=[result]))
    own = type(proto)()
    own.CopyFrom(proto)
    own.output[:] = [made for name in proto.output for made in parts.get(name, (name,))]
    for attribute in own.attribute:
        if attribute.name in BRANCHES:
            _extend(attribute.g, proto, tail, own.output, BRANCHES[attribute.name])
    return own


def _dependent(proto: Any, nodes: Sequence[Any]) -> list[int]:
    """The indices of nodes that depend on a result of an If."""
    made, indices = set(proto.output), []
    for index, node in enumerate(nodes):
        if made & set(names_read([node])):
            made.update(node.output)
            indices.append(index)
    return indices


def _extend(
    graph: Any, proto: Any, tail: Sequence[Any], results: Sequence[str], taken: bool
) -> None:
    """Append nodes to a branch, with the results of the branch under the names of the If.

    An appended If on the same condition gets a constant condition.
    """
    for inner, outer in zip([value.name for value in graph.output], proto.output):
        if outer and inner != outer:
            graph.node.add(op_type="Identity", input=[inner], output=[outer])
    decided = f"{proto.name}/decided"
    for node in tail:
        added = graph.node.add()
        added.CopyFrom(node)
        if node.op_type == "If" and node.input[0] == proto.input[0]:
            added.input[0] = decided
    if all(held.name != decided for held in graph.initializer):
        graph.initializer.add(name=decided, data_type=_BOOL, int32_data=[int(taken)])
    del graph.output[:]
    for name in results:
        graph.output.add().name = name


MOST_APART = 4  # nested nodes with different ranks that are compiled for both cases


def is_split(names: Names, relation: Relation | None) -> bool:
    """Whether a relation uses dims of this graph only, so that an If in it can test it."""
    if relation is None:
        return False
    left, _, right = relation
    return left.symbols | right.symbols <= set(names.emitter.box.names)


def split(names: Names, proto: Any, own: str, relation: Relation) -> Any:
    """Wrap a node in an If on a relation, with the node in both branches."""
    expect_few(names, own, relation)
    emission = Emission(names, names.path + own)
    left, sign, right = relation
    operands = []
    for size in (left, right):
        value = names.emitter.fresh(f"{own}/size")
        names.emitter.add_known(value, Known.size(size), emission.source)
        operands.append(value)
    operator = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal"}[sign]
    condition = names.emitter.fresh(f"{own}/condition")
    names.held[condition] = emission.emit(operator, *operands)
    return split_of(proto, condition, own)


def follow(
    names: Names, numbered: Numbered, remaining: Sequence[Numbered], results: Sequence[str],
    own: str, count: int, reason: Unlike,
) -> list[Numbered]:  # fmt: skip
    """The nodes that replace an If with different results and the nodes after it.

    Raises Unlike if the results of the graph differ, Unsupported if types do.
    """
    position, proto = numbered
    expect_few(names, own, reason.relation)
    names.apart.add(names.path + own)
    follow = follow_of(numbered, remaining, results, own, count)
    if follow:
        return follow
    problem = f"{reason}; no later node makes them equal"
    if reason.differing == "types":
        raise Unsupported(problem)
    unlike = [proto.output[index] for index in reason.results]
    indices = [number for number, name in enumerate(results) if name in unlike]
    lengths = reason.differing == "lengths"
    is_last = names.is_model or (lengths and not _may_follow(names, reason.relation))
    if indices and not is_last:
        raise Unlike(problem, reason.relation, indices, reason.differing)
    if lengths:
        names.settled.add(names.path + own)
        return [numbered, *remaining]
    parts = {name: _parts(names, name) for name in unlike if name}
    names.flat.update(parts)
    return [(position, flat_of(proto, parts)), *remaining]


def _may_follow(names: Names, relation: Relation | None) -> bool:
    """Whether nodes of the enclosing graph may use vectors of different lengths as shapes."""
    if names.is_settled or names.around is None:
        return False
    return is_split(names.around, relation)


def _parts(names: Names, name: str) -> tuple[str, str]:
    return names.emitter.fresh(f"{name}.elements"), names.emitter.fresh(f"{name}.shape")


def expect_few(names: Names, own: str, relation: Relation | None) -> None:
    """ModelError if a node would be compiled for too many cases."""
    if names.emitter.apart < MOST_APART:
        return
    known = [] if relation is None else [relation]
    at: Emitter | None = names.emitter
    while at is not None:
        known, at = [*at.relations, *known], at.outer
    decided = ", ".join(dict.fromkeys(f"{left} {sign} {right}" for left, sign, right in known))
    raise ModelError(
        f"{names.model.name}, node '{names.path + own}': how many axes its result has depends on "
        f"more than {MOST_APART} relations: {decided}",
        "name the axes of each Squeeze, or give such a dim a size or a bound: dims={'batch': 1}",
    )


def results_of_any_rank(names: Names) -> dict[str, Binding]:
    """The results of a model whose rank depends on the call."""
    made: dict[str, Binding] = {}
    for name, parts in names.flat.items():
        elements, shape = (names.held.get(part) for part in parts)
        whole = isinstance(elements, str) and isinstance(shape, str)
        made[name] = Ranked(str(elements), str(shape)) if whole else Broken()
    return made

"""Moves the nodes after an If with different result types into its branches.

    y = If(c) { x } else { Squeeze(x) }          rank 3 or 2
    z = Relu(y)                                  rank 3 or 2
    s = ReduceMean(z, all axes)                  equal again

becomes s = If(c) { ReduceMean(Relu(x)) } else { ReduceMean(Relu(Squeeze(x))) }. Nodes that do not
depend on the If stay where they are. A node whose own results depend on sizes becomes such an If
first (`split_of`): a Squeeze without axes, a Loop or a function that contains one. Results of the
model that remain different leave the branches as their elements and their shape (`flat_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anydim.compiler.frontends.onnx.file.order import names_read

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

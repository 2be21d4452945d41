"""A graph under construction: nodes are appended, types are inferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.nodes import FUSED, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Group,
    Index,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import reads
from anydim.sizes import Box, Size, as_size

SOURCE = "levels"  # of the nodes


class Emitter:
    """A graph under construction."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.parts: dict[tuple[str, Size, Size], str] = {}
        self.source = SOURCE

    def fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.types:
            number += 1
            name = f"{stem}.{number}"
        return name

    def node(self, node: Node, kinds: Iterable[TensorType]) -> None:
        self.nodes.append(node)
        self.types.update(zip(node.outputs, kinds))

    def emit(self, name: str, *inputs: str, called: str = "", **attributes: Any) -> str:
        """Add a node of an operator with one result; returns the result."""
        made = self.fresh(called or name)
        given = [self.types[each] for each in inputs]
        complete = operator(name).complete(attributes)
        kinds = operator(name).infer(given, complete, self.box)
        self.node(Node(name, inputs, (made,), complete, self.source), kinds)
        return made

    def part(self, value: str, first: Size | int, count: Size) -> str:
        """Slice a value along its first axis; the elements exist, which needs no proof here."""
        start = as_size(first)
        if (value, start, count) not in self.parts:
            own = self.types[value]
            shape = (count, *own.shape[1:])
            axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(shape))
            row, *rest = (Index(axis.name) for axis in axes)
            at = row if start == as_size(0) else Apply("add", (row, SizeTerm(start)))
            made = Statement(self.fresh(f"{value}.part"), axes, Read(value, (at, *rest)))
            found = self.statement(made, TensorType(own.dtype, shape))
            self.parts[value, start, count] = found
        return self.parts[value, start, count]

    def group(self, group: Group) -> None:
        """Add a node of comprehensions."""
        outputs = tuple(t.name for t in group.outputs)
        inputs = tuple(t.name for t in group.inputs)
        made = Node(FUSED, inputs, outputs, FrozenMapping({"group": group}), self.source)
        self.node(made, [t.type for t in group.outputs])

    def statement(self, statement: Statement, kind: TensorType) -> str:
        """Add a node of one comprehension; returns its result."""
        names = dict.fromkeys(read.tensor for read in reads(statement.body))
        inputs = tuple(Tensor(name, self.types[name]) for name in names)
        self.group(Group(inputs, (Tensor(statement.target, kind),), (statement,)))
        return statement.target

    def converted(self, value: str, kind: TensorType) -> str:
        """A value with the element type of `kind`."""
        own = self.types[value]
        if own.dtype == kind.dtype:
            return value
        axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(own.shape))
        body = Cast(kind.dtype, Read(value, tuple(Index(axis.name) for axis in axes)))
        target = self.fresh(f"{value}.{kind.dtype}")
        return self.statement(Statement(target, axes, body), TensorType(kind.dtype, own.shape))

    def moved(self, value: str, by: Size, target: str) -> str:
        """A vector of integers less a size."""
        kind = self.types[value]
        axis = Axis("i", kind.shape[0])
        body = Apply("sub", (Read(value, (Index("i"),)), SizeTerm(by)))
        return self.statement(Statement(self.fresh(target), (axis,), body), kind)

    def joined(self, values: Sequence[str]) -> str:
        """Values one after another along their first axis."""
        return values[0] if len(values) == 1 else self.emit("concat", *values, axis=0)

"""A graph under construction: nodes are appended, types are inferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import (
    BRANCH,
    LOOP,
    PART,
    REGION,
    SIZES,
    BranchRegion,
    LoopRegion,
    PartRegion,
    Scan,
    Sizes,
)
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
from anydim.lang.tree.renaming import rename_steps
from anydim.sizes import Box, Dim, Size, as_size

_OPERATORS = {LoopRegion: LOOP, BranchRegion: BRANCH, PartRegion: PART, Sizes: SIZES}


class Emitter:
    """A graph under construction; `source` is that of its nodes."""

    def __init__(self, box: Box, source: str = "levels") -> None:
        self.box, self.source = box, source
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.parts: dict[tuple[str, Size, Size], str] = {}
        self.stem = ""  # of the names of new dims

    def graph(
        self, name: str, inputs: Iterable[str], outputs: Iterable[str], **more: Any
    ) -> Graph:  # fmt: skip
        """The graph built so far."""
        return Graph(
            name, self.box, FrozenMapping(self.types), tuple(inputs), tuple(outputs),
            nodes=tuple(self.nodes), **more,
        )  # fmt: skip

    def kind(self, value: str) -> TensorType:
        """The type of a value."""
        return self.types[value]

    def fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.types:
            number += 1
            name = f"{stem}.{number}"
        return name

    def node(self, node: Node, kinds: Iterable[TensorType]) -> None:
        self.nodes.append(node)
        self.types.update(zip(node.outputs, kinds))

    def emit(self, name: str, /, *inputs: str, called: str = "", **attributes: Any) -> str:
        """Add a node of an operator with one result; returns the result."""
        return self.emit_many(name, 1, *inputs, called=called, **attributes)[0]

    def emit_many(
        self, name: str, results: int, /, *inputs: str, called: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node of an operator; returns its results."""
        given = [self.types[each] for each in inputs]
        complete = operator(name).complete(attributes)
        kinds = operator(name).infer(given, complete, self.box)
        made: list[str] = []
        for kind in kinds:
            made.append(self.fresh(called or name))
            self.types[made[-1]] = kind
        self.nodes.append(Node(name, inputs, tuple(made), complete, self.source))
        return made

    def region(
        self, region: LoopRegion | BranchRegion | PartRegion | Sizes, inputs: Iterable[str],
        outputs: Iterable[str] = (), kinds: Iterable[TensorType] = (),
    ) -> None:  # fmt: skip
        """Add a node that holds graphs, binds dims or shares memory."""
        name, attributes = _OPERATORS[type(region)], FrozenMapping({REGION: region})
        self.node(Node(name, tuple(inputs), tuple(outputs), attributes, self.source), kinds)

    # ---- dims ----------------------------------------------------------------------------------

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a dim under a new name."""
        name = f"{self.stem}.{stem}"
        while name in self.box.names:
            name = f"{name}_"
        self.box = self.box.also(Dim(name, low, high))
        return Size.symbol(name)

    def constrain(self, *sizes: Size) -> None:
        """Constrain sizes to be at least 0."""
        self.box = self.box.also(constraints=sizes)

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""
        self.region(Sizes(tuple(map(str, dims))), (value,))

    # ---- comprehensions ------------------------------------------------------------------------

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

    def instance(self, group: Group, names: dict[str, str], stem: str = "{}.new") -> None:
        """Add the comprehensions of a group under new names.

        `names` are the values of its inputs; it gets those of the other tensors. `stem` is the form
        of new names.
        """
        for tensor in (*group.outputs, *group.temporaries):
            names[tensor.name] = self.fresh(stem.format(tensor.name))
            self.types[names[tensor.name]] = tensor.type

        def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple({names[t.name]: Tensor(names[t.name], t.type) for t in old}.values())

        statements = rename_steps(group.statements, names)
        self.group(Group(
            tensors(group.inputs), tensors(group.outputs),
            tuple(each for each in statements if isinstance(each, Statement)),
            tensors(group.temporaries), steps=rename_steps(group.steps, names),
        ))  # fmt: skip

    def statement(self, statement: Statement, kind: TensorType) -> str:
        """Add a node of one comprehension; returns its result."""
        names = dict.fromkeys(read.tensor for read in reads(statement.body))
        inputs = tuple(Tensor(name, self.types[name]) for name in names)
        self.group(Group(inputs, (Tensor(statement.target, kind),), (statement,)))
        return statement.target

    def repeat(self, value: str, count: Size, target: str) -> str:
        """Repeat a value along a new first axis."""
        kind = self.types[value]
        axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape))
        body = Read(value, tuple(Index(axis.name) for axis in axes))
        made = Statement(self.fresh(target), (Axis("n", count), *axes), body)
        return self.statement(made, TensorType(kind.dtype, (count, *kind.shape)))

    def convert(self, value: str, kind: TensorType) -> str:
        """Convert a value to the element type of `kind`."""
        own = self.types[value]
        if own.dtype == kind.dtype:
            return value
        axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(own.shape))
        body = Cast(kind.dtype, Read(value, tuple(Index(axis.name) for axis in axes)))
        target = self.fresh(f"{value}.{kind.dtype}")
        return self.statement(Statement(target, axes, body), TensorType(kind.dtype, own.shape))

    def subtract(self, value: str, by: Size, target: str) -> str:
        """Subtract a size from a vector of integers."""
        kind = self.types[value]
        axis = Axis("i", kind.shape[0])
        body = Apply("sub", (Read(value, (Index("i"),)), SizeTerm(by)))
        return self.statement(Statement(self.fresh(target), (axis,), body), kind)

    def concatenate(self, values: Sequence[str]) -> str:
        """Concatenate values along their first axis."""
        return values[0] if len(values) == 1 else self.emit("concat", *values, axis=0)


class BodyEmitter(Emitter):
    """The body of a loop under construction: it captures values of the graph around it.

    `given` are the captured values, in order.
    """

    def __init__(self, box: Box, outer: Emitter) -> None:
        super().__init__(box, outer.source)
        self.outer, self.given = outer, list[str]()
        self.captured: dict[str, str] = {}

    def capture(self, value: str) -> str:
        """The name inside of a value outside."""
        if value not in self.captured:
            self.captured[value] = self.fresh(value)
            self.types[self.captured[value]] = self.outer.types[value]
            self.given.append(value)
        return self.captured[value]

    def loop(
        self, name: str, counter: str, trips: Size, histories: Iterable[str],
        results: Sequence[str], scans: Sequence[Scan],
    ) -> LoopRegion:  # fmt: skip
        """The loop of this body over its `histories` and captured values."""
        inputs = (*histories, *(self.captured[name] for name in self.given))
        body = self.graph(name, inputs, results)
        return LoopRegion(body, counter, trips, False, 0, tuple(scans))

"""Graphs nested in the graph of a builder: functions become branches and loop bodies.

Types of carried values and results are inferred as for ONNX models (`iterations.py` and
`branches.py` of `onnx/operators/`). The classes here correspond to `OnnxNode` and `Body` of the
importer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType, boolean
from anydim.base.errors import GraphError
from anydim.base.frozen import FrozenMapping
from anydim.base.reports import user_callback
from anydim.base.user_values import short_repr
from anydim.compiler.frontends.graph_builder import GraphBuilder, Value
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.branches import one_of
from anydim.compiler.frontends.onnx.operators.iterations import Iterations, trips_of
from anydim.compiler.frontends.onnx.values.bindings import Binding, Known
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import REGION, SIZES, Region, Sizes
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Guard, Size, Truth, as_size, prove

Make = Callable[..., Any]


class BuilderNode:
    """A node of a builder's graph under construction; its own emitter and scope."""

    def __init__(self, builder: GraphBuilder, stem: str, name: str = "") -> None:
        """`stem` begins the names of its dims, `name` is that of the node, if it differs."""
        self.builder = builder
        self.stem = stem
        self.source = builder._source(name or stem)
        self.known: dict[str, Known] = {}

    @property
    def emitter(self) -> BuilderNode:
        return self

    @property
    def scope(self) -> BuilderNode:
        return self

    may_decide_ranks = False  # shapes are sizes here

    @property
    def types(self) -> dict[str, TensorType]:
        return self.builder._types

    @property
    def nodes(self) -> list[Node]:
        return self.builder._nodes

    @property
    def box(self) -> Box:
        return self.builder._box

    def kind(self, value: str) -> TensorType:
        """The type of a value."""
        return self.types[value]

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return the result."""
        return self.emit_many(name, 1, *inputs, **attributes)[0]

    def emit_many(self, name: str, results: int, /, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node and return its results."""
        values = [self.builder._value(value) for value in inputs]
        made = self.builder._apply(name, values, attributes)
        return [value.name for value in (made if isinstance(made, tuple) else (made,))]

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar constant."""
        name: str = self.builder.constant(numpy.array(value, dtype.numpy)).name
        return name

    def as_type(self, value: str, dtype: DType) -> str:
        """Convert a value to a type, if it has another one."""
        return value if self.kind(value).dtype == dtype else self.emit("cast", value, to=dtype)

    def region(
        self, name: str, inputs: Sequence[str], kinds: Sequence[TensorType], region: Region
    ) -> list[str]:
        """Add a node that holds graphs, with results of these types."""
        outputs = tuple(self.builder._declared(name, kind) for kind in kinds)
        attributes: FrozenMapping[str, Any] = FrozenMapping({REGION: region})
        self.nodes.append(Node(name, tuple(inputs), outputs, attributes, self.source))
        return list(outputs)

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a dim under a name that is unique in all graphs of the builder."""
        stem = f"{self.stem}.{stem}" if self.stem else stem
        name, number = stem, 1
        while name in self.builder._reserved:
            number += 1
            name = f"{stem}_{number}"
        self.builder._reserved.add(name)
        self.builder._box = self.box.also(Dim(name, low, high))
        return Size.symbol(name)

    def constrain(self, *sizes: Size) -> None:
        """Constrain sizes to be at least 0."""
        self.builder._box = self.box.also(constraints=sizes)

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""
        self.region(SIZES, (value,), (), Sizes(tuple(map(str, dims))))

    def proved(self, left: Size | int, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self.box) is Truth.PROVED

    # ---- nested graphs ----

    def mark(self) -> set[str]:
        """The state that `reset` restores before a body is built again."""
        return set(self.builder._reserved)

    def reset(self, mark: set[str]) -> None:
        self.builder._reserved.intersection_update(mark)

    def body(self, make: Make) -> NestedGraph:
        """A nested graph of the node."""
        return NestedGraph(self.builder._inside(self.stem), self.stem, make)


class NestedGraph(BuilderNode):
    """A nested graph of a node while a function of a builder builds it."""

    def __init__(self, builder: GraphBuilder, stem: str, make: Make) -> None:
        super().__init__(builder, stem)
        self.make = user_callback(make)
        self.arguments: list[Any] = []

    @property
    def inputs(self) -> list[str]:
        return self.builder._inputs

    @property
    def captures(self) -> tuple[str, ...]:
        """The values it captures from the enclosing graph, in the order of its last inputs."""
        return tuple(self.builder._captured)

    @property
    def captured(self) -> dict[str, str]:
        return self.builder._captured

    @captured.setter
    def captured(self, values: dict[str, str]) -> None:
        self.builder._captured = values

    def outside(self, value: str) -> str:
        """The local name of a value of the enclosing graph."""
        assert self.builder._parent is not None
        own: str = self.builder._own(self.builder._parent._value(value)).name
        return own

    def add_input(self, stem: str, kind: TensorType) -> str:
        """Add an input to the graph."""
        name = self.builder._declared(stem, kind)
        self.builder._inputs.append(name)
        return name

    def bind(self, name: str, held: Binding | Known) -> None:
        """Append an argument of the function."""
        self.arguments.append(self.builder._value(held) if isinstance(held, str) else held)

    def run(self) -> list[Binding]:
        """Call the function: its condition if it has one, its values, its stacked values."""
        made = self.make(self.builder, *self.arguments)
        values = list(made) if isinstance(made, (list, tuple)) else [] if made is None else [made]
        own = [self.builder._own(value).name for value in values]
        going = self.builder._going
        return [*([] if going is None else [going]), *own, *self.builder._stacks]

    def graph(self, outputs: Sequence[str]) -> Graph:
        """The finished graph; outputs that are inputs or repeated are copied."""
        builder, made = self.builder, []
        given = {*builder._inputs, *builder._captured.values(), *builder._constants}
        for name in outputs:
            made.append(self.emit("identity", name) if name in given or name in made else name)
        inputs = (*builder._inputs, *builder._captured.values())
        return Graph(
            builder.name, builder._box, FrozenMapping(builder._types), inputs, tuple(made),
            FrozenMapping(builder._constants), tuple(builder._nodes), tuple(builder._guards),
        ).pruned()  # fmt: skip


def branch(
    builder: GraphBuilder, condition: Value | Guard, then: Make, otherwise: Make
) -> list[str]:
    """The results of one of two functions; see `Builder.branch`."""
    for make in (then, otherwise):
        _callable(builder, make)
    call: Any = BuilderNode(builder, "branch")
    bodies = [call.body(make) for make in (then, otherwise)]
    choice: str | Guard
    if isinstance(condition, Guard):
        choice = condition
    else:
        if not isinstance(condition, Value):
            hint = "give a bool scalar, or a relation between sizes"
            raise GraphError(f"'{builder.name}': {short_repr(condition)} is no condition", hint)
        if condition.type != TensorType(boolean, ()):
            raise GraphError(f"'{builder.name}': a condition of type {condition.type}")
        choice = builder._own(condition).name
    return _convert_errors(builder, lambda: one_of(call, bodies, choice))


def _callable(builder: GraphBuilder, make: Any) -> None:
    if not callable(make):
        raise GraphError(f"'{builder.name}': {short_repr(make)} is no function")


def size_of(builder: GraphBuilder, given: Any) -> Size:
    """Convert an argument to a size; GraphError if it is none."""
    try:
        return as_size(given)
    except Exception:  # an arbitrary object may raise anything
        raise GraphError(f"'{builder.name}': {short_repr(given)} is no size") from None


def loop(
    builder: GraphBuilder, body: Make, carried: Sequence[Value], trips: Size | int | None,
    condition: Value | None,
) -> list[str]:  # fmt: skip
    """The results of a loop; see `Builder.loop`."""
    _callable(builder, body)
    call: Any = BuilderNode(builder, "loop")
    names = [f"carried{number}" for number in range(len(carried))]
    limit = None if trips is None else trips_of(size_of(builder, trips), call)

    def bind(inside: Any, counter: Size) -> None:
        inside.arguments.insert(0, counter)

    first = None if condition is None else builder._own(condition).name
    iterations = Iterations(call, body, limit, first, names, _has_condition, bind)
    held = [builder._own(value).name for value in carried]
    return _convert_errors(builder, lambda: iterations.run(held))


def _has_condition(inside: Any) -> bool:
    return inside.builder._going is not None


def _convert_errors(builder: GraphBuilder, make: Callable[[], Sequence[Binding]]) -> list[str]:
    try:
        return [str(held) for held in make()]
    except Unsupported as reason:
        raise GraphError(f"'{builder.name}': {reason}") from None

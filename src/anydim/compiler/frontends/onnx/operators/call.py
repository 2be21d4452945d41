"""One ONNX node during its import by its row of the operator table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn, Protocol

import numpy

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, read_tensor
from anydim.compiler.frontends.onnx.values.bindings import Binding, Known, Result
from anydim.compiler.frontends.onnx.values.data_sizes import Element, element, elements, sizes_of
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import Region
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, Truth, as_size, prove

__all__ = ["Body", "GraphWriter", "OnnxNode", "Result", "Scope"]


class GraphWriter(Protocol):
    """Adds library nodes to a graph: of an ONNX node, or of a builder (`nesting.BuilderNode`)."""

    def kind(self, value: str) -> TensorType:
        """The type of a value."""

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return the result."""

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar constant."""

    def as_type(self, value: str, dtype: DType) -> str:
        """Convert a value to a type, if it has another one."""

    def proved(self, left: Size | int, relation: str, right: Size | int) -> bool:
        """Whether a relation of sizes holds for all dims."""


class Body(Protocol):
    """A subgraph of a node during import."""

    emitter: Emitter
    source: str
    inputs: list[str]

    @property
    def captures(self) -> tuple[str, ...]:
        """The values captured from the enclosing graph, in the order of its last inputs."""

    def add_input(self, stem: str, kind: TensorType) -> str:
        """Add an input to the graph."""

    def bind(self, name: str, held: Binding | Known) -> None:
        """Bind a name of the model in the graph."""

    def outside(self, value: str) -> str:
        """The local name of a value of the enclosing graph."""

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result to the graph and return the result."""

    def run(self) -> list[Binding]:
        """Import the nodes and return the outputs."""

    def graph(self, outputs: Sequence[str]) -> Graph:
        """The finished graph; its last inputs are the captured values of the enclosing graph."""


class Scope(Protocol):
    """The context of a node, for the rows of operators with subgraphs."""

    @property
    def folder(self) -> DataFolder | None:
        """The folder of the model's external data; None for a model in memory."""

    def body(self, proto: Any) -> Body:
        """A graph for a subgraph of the node."""

    def inline(self, proto: Any, held: Mapping[str, Binding] | None = None) -> list[Binding]:
        """The outputs of a subgraph that is inlined into this graph; its inputs are `held`."""

    @property
    def is_apart(self) -> bool:
        """Whether nodes after this one were moved into its branches."""

    @property
    def may_decide_ranks(self) -> bool:
        """Whether result vectors of different lengths may still be used as shapes."""

    def tried(self, body: Any) -> tuple[list[Binding] | None, list[Any]]:
        """The results of a subgraph; without them, the failures of its nodes."""

    def refuse(self, failures: Sequence[Any]) -> NoReturn:
        """Record failures of nodes in subgraphs."""

    def mark(self) -> Any:
        """The state that `reset` restores before a subgraph is imported again."""

    def reset(self, mark: Any) -> None:
        """Remove failures and names of dims added since a mark."""


@dataclass
class OnnxNode:
    """An ONNX node: its inputs and attributes, and the library nodes built for it."""

    emitter: Emitter
    proto: Any
    opset: int
    inputs: tuple[Binding | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    source: str
    scope: Scope
    schema: Any = None  # of its operator in the standard
    nodes: list[Node] = field(default_factory=list)

    @property
    def operator(self) -> str:
        """The name of its operator in the standard."""
        name: str = self.proto.op_type
        return name

    def array(self, tensor: Any) -> numpy.ndarray:
        """The contents of a tensor attribute, inline or external."""
        return read_tensor(tensor, self.scope.folder, self.source)

    # ---- inputs ----

    def given(self, position: int) -> bool:
        """Whether an optional input is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def held(self, position: int) -> Binding:
        """The value of a required input."""
        held = self.inputs[position] if position < len(self.inputs) else None
        if held is None:
            raise Unsupported(f"input {position} is missing")
        return held

    def input(self, position: int) -> str:
        """The name of a required tensor input."""
        held = self.held(position)
        if not isinstance(held, str):
            raise Unsupported(f"input {position} is no tensor")
        return held

    def type(self, position: int) -> TensorType:
        return self.emitter.types[self.input(position)]

    def shape(self, position: int) -> tuple[Size, ...]:
        return self.type(position).shape

    def axes(self, position: int, *ranks: int) -> tuple[Size, ...]:
        """The shape of an input, which must have one of these ranks."""
        kind = self.type(position)
        if kind.rank not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise Unsupported(f"its input {position} is {kind}, expected {wanted} axes")
        return kind.shape

    def given_inputs(self, *positions: int) -> list[str]:
        """The tensors of those of some inputs that are given."""
        return [self.input(position) for position in positions if self.given(position)]

    def axis(self, axis: int, rank: int | None = None) -> int:
        """An axis of the first input, or of a tensor of `rank` axes, counted from the front."""
        rank = self.type(0).rank if rank is None else rank
        if not -rank <= axis < rank:
            raise Unsupported(f"axis {axis} of a tensor with {rank} axes")
        return axis % rank

    def scalar(self, position: int) -> str:
        """An input of one element, as a scalar."""
        value = self.input(position)
        return self.emit("reshape", value, shape=()) if self.type(position).rank else value

    def with_constant_end(self, position: int) -> str:
        """An input whose last size is a number in its type, if it is one number in every call."""
        *outer, last = self.shape(position) or (as_size(1),)
        number = self.emitter.constant(last)
        if last.constant is not None or number is None:
            return self.input(position)
        return self.emit("reshape", self.input(position), shape=(*outer, number))

    def size(self, position: int) -> Size:
        """The only element of an input, as a size."""
        sizes = self.sizes(position, 1)
        if len(sizes) != 1:
            raise Unsupported(f"{len(sizes)} numbers as its input {position}, expected one")
        return sizes[0]

    def is_static(self, position: int) -> bool:
        """Whether the contents of an input are known before a run."""
        name = self.input(position)
        if self.emitter.is_static(name) or not self.type(position).dtype.is_integer:
            return self.emitter.is_static(name)
        if self.type(position).rank == 1 and self.emitter.constant(self.shape(position)[0]) is None:
            return False
        return all(isinstance(item, Size) for item in self.elements(position))

    def known(self, position: int) -> numpy.ndarray:
        """The contents of an input; Unsupported if they are known only at run time."""
        name = self.input(position)
        if self.emitter.is_static(name):
            return self.emitter.contents(name)
        if self.type(position).dtype.is_integer and self.is_static(position):
            found = Known.sizes(self.sizes(position), self.type(position).dtype).array
            return found.reshape(()) if self.type(position).rank == 0 else found
        raise Unsupported(f"its input '{name}' is data; only sizes and constants can be used")

    def sizes(self, position: int, count: int | None = None) -> tuple[Size, ...]:
        """The contents of a vector (or one number) of integers, as sizes.

        `count` is the required element count, if the vector's length is open.

        Run-time elements become dims: they are bound when the node runs, and negative ones are
        errors of the call.
        """
        return sizes_of(self, self.nodes, self.input(position), count)

    def elements(self, position: int) -> list[Size | Element]:
        """The contents of a vector (or one number) of integers, as far as they are known."""
        return elements(self.emitter, self.nodes, self.input(position))

    def contents(self, name: str, count: int | None = None) -> list[Size | Element]:
        """The contents of a value that is a vector of integers, as far as they are known."""
        return elements(self.emitter, self.nodes, name, count)

    def element(self, position: int) -> Size | Element:
        """The single element of an input of integers, as far as it is known."""
        return element(self.emitter, self.nodes, self.input(position))

    def integers(self, position: int) -> tuple[int, ...]:
        """The contents of a vector of integers that do not depend on dims."""
        items = self.elements(position)
        if not all(isinstance(item, Size) for item in items):
            raise Unsupported(f"its input '{self.input(position)}' is data, expected constants")
        values = [item.constant for item in items if isinstance(item, Size)]
        if any(value is None for value in values):
            raise Unsupported(f"its input '{self.input(position)}' depends on a dim")
        return tuple(value for value in values if value is not None)

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, its default in the standard, or `default`."""
        return self.attributes.get(name, default)

    # ---- results ----

    def emit(self, name: str, /, *inputs: str | None, **attributes: Any) -> str:
        """Add a node of a library operator with one result and return the result."""
        return self.emit_many(name, 1, *inputs, **attributes)[0]

    def binary(self, name: str) -> str:
        """Combine the first two inputs, which broadcast.

        Before opset 7 the second one is aligned at the attribute `axis`, not at the end.
        """
        second = self.input(1)
        if self.opset < 7 and self.attribute("broadcast") and self.attribute("axis") is not None:
            missing = self.type(0).rank - self.attribute("axis") - self.type(1).rank
            if missing > 0:
                axes = tuple(range(self.type(1).rank, self.type(1).rank + missing))
                second = self.emit("unsqueeze", second, axes=axes)
        return self.emit(name, self.input(0), second)

    def emit_many(
        self, name: str, results: int, /, *inputs: str | None, **attributes: Any
    ) -> list[str]:
        """Add a node of a library operator and return its results."""
        stem = f"{self.outputs[0] or self.source}/{name}"
        outputs = tuple(self.emitter.fresh(stem) for _ in range(results))
        node = self.emitter.node(name, inputs, outputs, attributes, self.source)
        self.nodes.append(node)
        return list(outputs)

    def region(
        self, name: str, inputs: Sequence[str], kinds: Sequence[TensorType], region: Region
    ) -> list[str]:
        """Add a node that holds graphs, with results of these types."""
        stem = f"{self.outputs[0] or self.source}/{name}"
        outputs = {self.emitter.fresh(stem): kind for kind in kinds}
        self.nodes.append(self.emitter.region(name, tuple(inputs), outputs, region, self.source))
        return list(outputs)

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""
        self.nodes.append(self.emitter.finding(value, dims, self.source))

    def counted(self, value: str, limit: Size) -> str:
        """An integer value as int64, checked at run time to be in 0..`limit`."""
        if self.kind(value).dtype != int64:
            value = self.emit("cast", value, to=int64)
        return self.emit("counted", value, count=limit + 1)

    @property
    def box(self) -> Box:
        """The dims of the graph declared so far."""
        return self.emitter.box

    def kind(self, value: str) -> TensorType:
        """The type of a value."""
        return self.emitter.types[value]

    def constrain(self, *sizes: Size) -> None:
        """Constrain sizes to be at least 0."""
        self.emitter.constrain(*sizes)

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a dim named after the node."""
        own = (self.outputs[0] or self.operator).rsplit("/", 1)[-1]
        return self.emitter.dim(f"{own}.{stem}" if stem else own, low, high)

    def as_type(self, value: str, dtype: DType) -> str:
        """Convert a value to a type, if it has another one."""
        same = self.kind(value).dtype == dtype
        return value if same else self.emit("cast", value, to=dtype)

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar constant."""
        name = self.emitter.fresh(f"{self.outputs[0] or self.source}/constant")
        try:
            array = numpy.array(value, dtype.numpy)
        except (OverflowError, ValueError):
            raise Unsupported(f"the number {value} as {dtype}") from None
        self.emitter.add_known(name, Known.of(array), self.source)
        return name

    def iota(self, count: Size | int, start: int = 0, step: int = 1) -> str:
        """The vector start, start + step, ... of int64."""
        return self.emit("range", start=start, step=step, count=count, dtype=int64)

    def size_tensor(self, size: Size, dtype: DType = int64) -> str:
        """A size as a scalar that is data."""
        return self.emit("size_tensor", values=(size,), dtype=dtype, scalar=True)

    def numbers(self, values: Any, dtype: DType = int64) -> str:
        """A constant of any shape."""
        name = self.emitter.fresh(f"{self.outputs[0] or self.source}/constant")
        self.emitter.add_constant(name, numpy.asarray(values, dtype.numpy))
        return name

    def proved(self, left: Size | int, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self.emitter.box) is Truth.PROVED

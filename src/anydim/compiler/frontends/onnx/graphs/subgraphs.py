"""Imports subgraphs of a node: as graphs of their own, or inlined into the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.values.bindings import Binding, Known
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.compiler.graph.nodes import Graph
from anydim.lang.tree import TensorType
from anydim.sizes import Size


class Failed(Exception):
    """A subgraph could not be imported; its failures are recorded."""


@dataclass(frozen=True)
class NodeScope:
    """The context of a node (`operators.call.Scope`), for the rows of operators with subgraphs."""

    names: Names
    label: str

    @property
    def folder(self) -> DataFolder | None:
        return self.names.model.folder

    def body(self, proto: Any) -> Body:
        return Body(self.names, proto, self.label)

    def inline(self, proto: Any, held: Mapping[str, Binding] | None = None) -> list[Binding]:
        inner = self.names.within(self.names.emitter, self.label, self.label)
        inner.check(proto)
        inner.held.update(held or {})
        return outputs_of(inner, proto, self.label)

    @property
    def is_apart(self) -> bool:
        return self.label in self.names.apart

    @property
    def may_decide_ranks(self) -> bool:
        return self.label not in self.names.settled

    def tried(self, body: Body) -> tuple[list[Binding] | None, list[Any]]:
        before = self.mark()
        try:
            return body.run(), []
        except Failed:
            failures = self.names.model.failures[before[0] :]
            self.reset(before)
            return None, failures

    def refuse(self, failures: Sequence[Any]) -> NoReturn:
        self.names.model.failures.extend(failures)
        raise Failed

    def mark(self) -> tuple[int, set[str]]:
        return len(self.names.model.failures), set(self.names.model.dims)

    def reset(self, mark: tuple[int, set[str]]) -> None:
        del self.names.model.failures[mark[0] :]
        self.names.model.dims.intersection_update(mark[1])


class Emission:
    """Adds library nodes to a graph at once; a row's nodes wait until it has returned."""

    def __init__(self, names: Names, label: str) -> None:
        self.names = names
        self.emitter = names.emitter
        self.label = label
        self.source = f"{names.model.name}: {label}"

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result to the graph and return the result."""
        output = self.emitter.fresh(f"{self.label}/{name}")
        node = self.emitter.node(name, inputs, (output,), attributes, self.source)
        self.emitter.commit([node])
        return output

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a dim named after the node."""
        own = self.label.rsplit("/", 1)[-1]
        return self.emitter.dim(f"{own}.{stem}" if stem else own, low, high)

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""
        self.emitter.commit([self.emitter.finding(value, dims, self.source)])


class Body(Emission):
    """A subgraph of a node during import (`operators.call.Body`)."""

    def __init__(self, around: Names, proto: Any, label: str) -> None:
        emitter = Emitter(around.emitter.box, outer=around.emitter, reserved=around.model.dims)
        super().__init__(around.within(emitter, label, ""), label)
        self.proto = proto
        self.names.check(proto)
        self.inputs: list[str] = []

    def add_input(self, stem: str, kind: TensorType) -> str:
        value = self.emitter.fresh(stem)
        self.emitter.types[value] = kind
        self.inputs.append(value)
        return value

    def bind(self, name: str, held: Binding | Known) -> None:
        if isinstance(held, Known):
            value = self.emitter.fresh(name)
            self.emitter.add_known(value, held, self.source)
            held = value
        self.names.held[name] = held

    def outside(self, value: str) -> str:
        return self.emitter.capture(value)

    def run(self) -> list[Binding]:
        """Import the nodes and return the outputs; Failed if nodes failed."""
        return outputs_of(self.names, self.proto, self.label)

    def graph(self, outputs: Sequence[str]) -> Graph:
        """The finished graph; its last inputs are the captured values (`captures`)."""
        emitter = self.emitter
        made: list[str] = []
        for name in outputs:
            emitter.materialise(name)
            if name not in emitter.makers or name in made:
                name = self.emit("identity", name)
            made.append(name)
        inputs = [*self.inputs, *emitter.captured.values()]
        return emitter.graph(self.proto.name or self.label, inputs, made)

    @property
    def captures(self) -> tuple[str, ...]:
        return tuple(self.emitter.captured)


def outputs_of(names: Names, proto: Any, label: str) -> list[Binding]:
    before = len(names.model.failures)
    names.initializers(proto.initializer)
    names.run(proto.node, [value.name for value in proto.output])
    if len(names.model.failures) > before:
        raise Failed
    return [names.result(value.name, label) for value in proto.output]

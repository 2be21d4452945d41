"""The ONNX importer: a model file becomes a graph with symbolic sizes.

    graph = import_model("encoder.onnx", {"batch": Dim(0, 64), "seq": Dim(1, 512)})

Named dims of the file (dim_param) become dims; unnamed ones get a name from their input and axis.
What is not supported is reported once, with every node that needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anydim.ops  # noqa: F401  fills the registry of operators
from anydim.base.errors import AnydimError, GraphError, ModelError, OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.text import listed, suggestion
from anydim.frontends.onnx.bodies import body_of
from anydim.frontends.onnx.call import Call, Result
from anydim.frontends.onnx.emitting import Emitter, Known
from anydim.frontends.onnx.operators import OPERATORS
from anydim.frontends.onnx.reading import Opened, open_model
from anydim.frontends.onnx.schema import attributes_of, schema_of
from anydim.frontends.onnx.tensors import MOST_AXES, Unsupported, element_type, read_tensor
from anydim.graph.nodes import Graph, Node
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Size, as_size

_STANDARD = ("", "ai.onnx")


def import_model(
    source: str | os.PathLike[str] | bytes | Any, dims: Mapping[str, Dim] | None = None
) -> Graph:
    """The graph of an ONNX model: a path, the bytes of a file, or a ModelProto.

    `dims` gives bounds to dims of the model; the others go from 0 up. Raises ModelError for a
    model that cannot be read or needs what anydim lacks, OptionError for dims it does not have.
    """
    opened = open_model(source)
    try:
        return _Import(opened).graph(dims or {})
    except (UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{opened.name} is malformed: {type(error).__name__}") from None


@dataclass(frozen=True)
class _Failure:
    """A node that could not be imported, and why."""

    node: str
    operator: str
    opset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.operator} (opset {self.opset}): {self.reason}"


class _Import:
    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.model = opened.name
        self.proto = opened.proto.graph
        self.emitter = Emitter(Box())
        self.failures: list[_Failure] = []
        self.broken: set[str] = set()  # results of nodes that failed

    def graph(self, dims: Mapping[str, Dim]) -> Graph:
        self.check_frame()
        self.initializers()
        inputs = self.inputs(dims)
        produced = {name for node in self.proto.node for name in node.output if name}
        for position, proto in enumerate(self.proto.node):
            self.node(proto, position, produced)
        if self.failures:
            raise self.unsupported()
        outputs = self.outputs()
        emitter = self.emitter
        unbuilt = set(emitter.virtual)
        graph = Graph(
            self.proto.name or self.model, emitter.box,
            FrozenMapping({n: k for n, k in emitter.types.items() if n not in unbuilt}),
            tuple(inputs), outputs, FrozenMapping(emitter.constants), tuple(emitter.nodes),
        )  # fmt: skip
        return graph.pruned()

    # ---- the frame ----

    def check_frame(self) -> None:
        """Names must be there, be text and be defined once."""
        if any(isinstance(name, bytes) for name in _names(self.proto)):
            raise ModelError(f"{self.model}: a name is not UTF-8 text", "the file may be damaged")
        if self.proto.sparse_initializer:
            raise ModelError(f"{self.model}: sparse initializers are not supported")
        given = [tensor.name for tensor in self.proto.initializer]
        inputs = [value.name for value in self.proto.input]
        made = [name for node in self.proto.node for name in node.output if name]
        taken: set[str] = set()
        for kind, names in (("initializer", given), ("value", [*dict.fromkeys(inputs), *made])):
            seen: set[str] = set()
            for name in names:
                if not name:
                    raise ModelError(f"{self.model}: an {kind} has no name")
                if name in seen or (name in taken and name in made):
                    raise ModelError(f"{self.model}: {kind} '{name}' is defined twice")
                seen.add(name)
            taken |= seen
        if len(set(inputs)) != len(inputs):
            raise ModelError(f"{self.model}: an input is declared twice")
        self.emitter.taken |= taken

    def initializers(self) -> None:
        for number, tensor in enumerate(self.proto.initializer):
            where = f"{self.model}: initializer '{tensor.name}'"
            raw = self.opened.weights.get(number)
            try:
                array = read_tensor(tensor, self.opened.folder, where, raw)
            except Unsupported as reason:
                self.broken.add(tensor.name)
                self.fail(tensor.name, "initializer", str(reason))
                continue
            self.emitter.add_constant(tensor.name, array)

    def inputs(self, dims: Mapping[str, Dim]) -> list[str]:
        """The inputs with their types; makes the box of their dims."""
        constants = {tensor.name for tensor in self.proto.initializer}
        names = _DimNames()
        inputs = []
        for value in self.proto.input:
            if value.name not in constants:
                kind = self.input_type(value, names)
                if kind is not None:
                    self.emitter.types[value.name] = kind
                    inputs.append(value.name)
        for name in dims:
            if name not in names.known:
                hint = suggestion(name, names.known)
                hint = hint or f"its dims are {listed(names.known)}"
                raise OptionError(f"{self.model} has no dim '{name}'", hint)
        self.emitter.box = Box(
            tuple(dims.get(name, Dim(0)).named(name) for name in names.known)
        )
        return inputs

    def input_type(self, value: Any, names: _DimNames) -> TensorType | None:
        if not value.type.HasField("tensor_type"):
            self.fail(value.name, "input", "it is no tensor")
            self.broken.add(value.name)
            return None
        tensor = value.type.tensor_type
        where = f"{self.model}: input '{value.name}'"
        if not tensor.HasField("shape"):
            raise ModelError(f"{where} has no shape", "the number of its axes has to be known")
        rank = len(tensor.shape.dim)
        if rank > MOST_AXES:
            raise ModelError(f"{where} has {rank} axes, at most {MOST_AXES} are possible")
        shape = tuple(
            names.size(dim, f"{value.name}_{axis}", where)
            for axis, dim in enumerate(tensor.shape.dim)
        )
        try:
            return TensorType(element_type(tensor.elem_type), shape)
        except Unsupported as reason:
            self.fail(value.name, "input", str(reason))
            self.broken.add(value.name)
            return None

    def outputs(self) -> tuple[str, ...]:
        """The results; one that is an input, a constant or a known value gets a node of its own."""
        emitter = self.emitter
        names = [value.name for value in self.proto.output]
        if not names:
            raise ModelError(f"{self.model} has no outputs")
        if len(set(names)) != len(names):
            raise ModelError(f"{self.model}: an output is declared twice")
        for name in names:
            value = emitter.resolve(name)
            if value not in emitter.types:
                raise ModelError(f"{self.model}: output '{name}' is never computed")
            emitter.materialise(value)
            if value != name:
                source = f"{self.model}: output {name}"
                emitter.commit([emitter.node("identity", (value,), (name,), {}, source)])
        return tuple(names)

    # ---- nodes ----

    def node(self, proto: Any, position: int, produced: set[str]) -> None:
        """Add one ONNX node to the graph, or note why it cannot be."""
        label = proto.name or next((name for name in proto.output if name), f"node {position}")
        inputs = tuple(self.emitter.resolve(name) if name else None for name in proto.input)
        for name in filter(None, inputs):
            if name not in self.emitter.types and name not in self.broken:
                problem = "is only defined later" if name in produced else "is not defined"
                raise ModelError(
                    f"{self.model}, node '{label}' ({proto.op_type}): its input '{name}' {problem}",
                    "nodes must stand in an order that defines before use",
                )
        try:
            self.build(proto, label, inputs, self.opened.opset)
        except (Unsupported, GraphError) as reason:
            text = reason.problem if isinstance(reason, AnydimError) else str(reason)
            self.fail(label, proto.op_type, text)
            self.broken.update(proto.output)

    def build(
        self, proto: Any, label: str, inputs: tuple[str | None, ...], opset: int
    ) -> None:
        """Add the nodes that stand for one ONNX node: those of its row, or of its body."""
        schema = _schema(proto, opset)
        if proto.op_type in OPERATORS:
            call = self.call(proto, schema, label, inputs, opset)
            if self.whole(proto, inputs):
                self.define(call, OPERATORS[call.operator](call))
            return
        if not (schema.has_function or schema.has_context_dependent_function):
            raise Unsupported("not supported")
        if not self.whole(proto, inputs):
            return
        kinds = [None if name is None else self.emitter.types[name] for name in inputs]
        body = body_of(proto, schema, opset, kinds, self.emitter.fresh)
        if body is None:
            raise Unsupported("not supported")
        for part in body.nodes:
            values = tuple(self.emitter.resolve(name) if name else None for name in part.input)
            try:
                self.build(part, label, values, body.opset)
            except (Unsupported, GraphError) as reason:
                text = reason.problem if isinstance(reason, AnydimError) else str(reason)
                raise Unsupported(f"its part {part.op_type}: {text}") from None

    def whole(self, proto: Any, inputs: tuple[str | None, ...]) -> bool:
        """Whether all inputs could be imported; the results are not, where they could not."""
        if self.broken.isdisjoint(name for name in inputs if name):
            return True
        self.broken.update(proto.output)
        return False

    def call(
        self, proto: Any, schema: Any, label: str, inputs: tuple[str | None, ...], opset: int
    ) -> Call:
        """The node with its attributes checked against the standard; Unsupported otherwise."""
        if not schema.min_input <= len(inputs) <= schema.max_input:
            raise Unsupported(f"{len(inputs)} inputs")
        if not proto.output or not len(proto.output) <= schema.max_output:
            raise Unsupported(f"{len(proto.output)} results")
        outputs = list(proto.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        attributes = attributes_of(proto, schema)
        return Call(
            self.emitter, proto.op_type, opset, inputs, tuple(outputs) or ("",),
            attributes, f"{self.model}: {label}",
        )  # fmt: skip

    def define(self, call: Call, results: Result | Sequence[Result]) -> None:
        """Give the results their ONNX names; nodes over known values become known values."""
        if isinstance(results, (str, Known)):
            results = [results]
        emitter = self.emitter
        nodes = call.nodes
        own = {name for node in nodes for name in node.outputs}
        if nodes and all(n in own or n in emitter.known for node in nodes for n in node.given):
            folded = emitter.fold(nodes)
            if folded is not None:
                for name, known in folded.items():
                    emitter.add_known(name, known, call.source)
                nodes, own = [], set()
        renamed: dict[str, str] = {}
        for name, result in zip(call.outputs, results):
            if isinstance(result, Known):
                emitter.add_known(name, result, call.source)
            elif result in own and name and result not in renamed:
                renamed[result] = name
                emitter.types[name] = emitter.types.pop(result)
            elif name:
                emitter.aliases[name] = result
        emitter.commit(_renamed(nodes, renamed))

    def fail(self, name: str, operator: str, reason: str) -> None:
        self.failures.append(_Failure(name, operator, self.opened.opset, reason))

    def unsupported(self) -> ModelError:
        lines = "\n  ".join(map(str, self.failures))
        return ModelError(f"{self.model} has {len(self.failures)} nodes that are not supported:"
                          f"\n  {lines}")  # fmt: skip


def _schema(proto: Any, opset: int) -> Any:
    """What the standard says of the operator of a node; Unsupported where it does not know it."""
    if proto.domain not in _STANDARD:
        raise Unsupported(f"domain '{proto.domain}'")
    schema = schema_of(proto.op_type, opset)
    if schema is None:
        raise Unsupported("not an operator of this opset")
    return schema


def _names(graph: Any) -> Iterator[str | bytes]:
    """Every text that the import reads; the decoder leaves what is not UTF-8 as bytes."""
    yield graph.name
    for node in graph.node:
        yield from (node.op_type, node.name, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


class _DimNames:
    """Names for the dims of a model, in order of appearance."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}  # our name -> the file's

    def size(self, dim: Any, unnamed: str, where: str) -> Size:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ModelError(f"{where} has a size of {dim.dim_value}")
            return as_size(dim.dim_value)
        given = dim.dim_param or unnamed
        name = re.sub(r"\W", "_", given) or "_"
        if name[0].isdigit():
            name = f"_{name}"
        while self.known.get(name, given) != given:
            name += "_"
        self.known[name] = given
        return Size.symbol(name)


def _renamed(nodes: Iterable[Node], names: Mapping[str, str]) -> list[Node]:
    if not names:
        return list(nodes)
    return [
        Node(
            node.operator,
            tuple(names.get(n, n) if n else n for n in node.inputs),
            tuple(names.get(n, n) for n in node.outputs),
            node.attributes,
            node.source,
        )
        for node in nodes
    ]

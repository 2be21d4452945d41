"""The names of one ONNX graph during import, and the state shared by all graphs of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.custom import Operators
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.compiler.frontends.onnx.file.structure import is_weight
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, read_tensor
from anydim.compiler.frontends.onnx.graphs.functions import Function
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Items, Maybe, Packed
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.compiler.graph.derivations import Weight

TWO_VALUES = "is also an initializer of the same body"


@dataclass(frozen=True)
class Failure:
    """A node that could not be imported, and why; one line of the error of the model."""

    node: str
    operator: str
    opset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.operator} (opset {self.opset}): {self.reason}"


@dataclass
class ImportState:
    """The state shared by all graphs of a model."""

    name: str
    folder: DataFolder | None
    functions: Mapping[tuple[str, str, str], Function] = field(default_factory=dict)
    operators: Operators = field(default_factory=dict)  # definitions of the user
    domains: Mapping[str, int] = field(default_factory=dict)  # opsets of other domains
    failures: list[Failure] = field(default_factory=list)
    dims: set[str] = field(default_factory=set)
    bodies: dict[Any, Any] = field(default_factory=dict)  # of functions, by argument types
    expansions: dict[int, int] = field(default_factory=dict)  # node counts of expanded functions
    depth: int = 0
    tracked: dict[int, Weight] = field(default_factory=dict)  # by number of the initializer
    fallback: bool = False  # whether onnxruntime may run nodes that cannot be imported


class Names(ABC):
    """What the names of a graph or function are bound to; `scope.py` imports the nodes.

    Nodes are added to `emitter`. Unknown names are looked up in `around`; values of another graph
    are captured. `inlined` is the prefix for values of nodes that are inlined into another graph;
    `attributes` are those of the enclosing function.
    """

    def __init__(
        self, model: ImportState, emitter: Emitter, opset: int, around: Names | None = None,
        inlined: str = "", attributes: Mapping[str, Any] | None = None, path: str = "",
    ) -> None:  # fmt: skip
        self.model = model
        self.emitter = emitter
        self.opset = opset
        self.around = around
        self.inlined = inlined
        self.attributes = attributes or {}
        self.path = path
        self.held: dict[str, Binding | None] = {}
        self.value_names: dict[str, str] = {}  # results whose values have a name already
        self.produced: set[str] = set()
        self.is_model = False  # the top-level graph of the model
        self.apart: set[str] = set()  # labels of Ifs that contain the nodes after them
        self.settled: set[str] = set()  # labels of Ifs whose vectors are not used as shapes
        self.is_settled = False  # the graph is a branch of one of those
        self.flat: dict[str, tuple[str, str]] = {}  # results of any rank: elements and shape

    def within(self, emitter: Emitter, label: str, inlined: str) -> Names:
        """The names of a subgraph of a node."""
        inner = type(self)(
            self.model, emitter, self.opset, self, inlined, self.attributes, f"{label}/"
        )
        inner.is_settled = self.is_settled or label in self.settled
        return inner

    # ---- names ----

    def lookup(self, name: str) -> Binding | None:
        """Resolve a name; KeyError if it is undefined."""
        if name in self.held:
            return self.held[name]
        if self.around is None:
            raise KeyError(name)
        held = self.around.lookup(name)
        if held is not None and self.emitter is not self.around.emitter:
            held = capture_held(self.emitter, held)
        self.held[name] = held
        return held

    def value_name(self, name: str) -> str:
        """The name of the value for a result with this name."""
        if name in self.value_names or not name:
            return self.value_names.get(name, "")
        return self.emitter.fresh(f"{self.inlined}/{name}") if self.inlined else name

    def initializers(
        self, tensors: Iterable[Any], weights: Mapping[int, Any] | None = None
    ) -> None:
        """Add the constants of a graph; `weights` read contents that were left in the file."""
        for number, tensor in enumerate(tensors):
            where = f"{self.model.name}: initializer '{self.path}{tensor.name}'"
            try:
                raw = (weights or {}).get(number)
                array = read_tensor(tensor, self.model.folder, where, raw)
            except Unsupported as reason:
                self.held[tensor.name] = Broken()
                self.fail(self.path + tensor.name, "initializer", str(reason))
                continue
            value = self.value_name(tensor.name)
            weight = self.weight(number, tensor.name, array) if self.is_model else None
            self.emitter.add_constant(value, array, weight)
            self.held[tensor.name] = value

    def weight(self, number: int, name: str, array: numpy.ndarray) -> Weight | None:
        """The weight of an initializer of the model; None if its contents belong to the graph."""
        is_fixed = not is_weight(from_numpy(array.dtype), array.size)
        found = self.model.tracked.setdefault(number, Weight(number, name, array, is_fixed))
        return None if is_fixed else found

    @abstractmethod
    def run(self, nodes: Sequence[Any], results: Sequence[str] = ()) -> None:
        """Import nodes in order and record failures; `results` are the outputs of the graph."""

    def result(self, name: str, label: str = "") -> Binding:
        """The value of a result of this graph or function; ModelError if there is none."""
        try:
            held = self.lookup(name)
        except KeyError:
            held = None
        if held is None:
            what = f", '{label}': its result" if label else ": output"
            raise ModelError(f"{self.model.name}{what} '{name}' is never computed")
        return held

    def fail(self, name: str, operator: str, reason: str) -> None:
        self.model.failures.append(Failure(name, operator, self.opset, reason))

    def check(self, proto: Any) -> None:
        """Check that names are text, not empty and defined once; ModelError otherwise."""
        model = f"{self.model.name}{', ' + self.path if self.path else ''}"
        if any(isinstance(name, bytes) for name in _names(proto)):
            raise ModelError(f"{model}: a name is not UTF-8 text", "the file may be damaged")
        given = [tensor.name for tensor in proto.initializer]
        inputs = [value.name for value in proto.input]
        made = [name for node in proto.node for name in node.output if name]
        taken: set[str] = set()
        for kind, names in (("initializer", given), ("value", [*dict.fromkeys(inputs), *made])):
            seen: set[str] = set()
            for name in names:
                if not name:
                    raise ModelError(f"{model}: one {kind} has no name")
                if name in seen or (name in taken and name in made):
                    raise ModelError(f"{model}: {kind} '{name}' is defined twice")
                seen.add(name)
            taken |= seen
        if len(set(inputs)) != len(inputs):
            raise ModelError(f"{model}: an input is declared twice")
        both = set() if self.is_model else {*inputs} & {*given}
        if both:  # only inputs of the model have defaults
            raise ModelError(
                f"{model}: input '{min(both)}' {TWO_VALUES}",
                "a body takes its inputs from its node: rename the initializer, or remove it",
            )
        if not self.inlined:
            self.emitter.taken.update([*given, *made])


def capture_held(emitter: Emitter, held: Binding) -> Binding:
    """A binding of the enclosing graph in a subgraph; its tensors become inputs of the subgraph."""
    if isinstance(held, str):
        return emitter.capture(held)
    if isinstance(held, Items):
        return Items(tuple(map(emitter.capture, held.values)), held.dtype)
    if isinstance(held, Packed):
        return Packed(emitter.capture(held.elements), emitter.capture(held.shapes), held.rank)
    if isinstance(held, Maybe):
        value = None if held.value is None else capture_held(emitter, held.value)
        return Maybe(value, held.single)
    return held


def _names(graph: Any) -> Iterator[str | bytes]:
    """All names that the import reads; the decoder returns names that are not UTF-8 as bytes."""
    yield graph.name
    for node in graph.node:
        yield from (node.op_type, node.name, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)

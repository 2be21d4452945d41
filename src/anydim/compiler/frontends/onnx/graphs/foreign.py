"""Runs nodes that cannot be imported in onnxruntime, if the user allows it.

The node becomes an ONNX model of its own. onnxruntime infers the types of its results; sizes that
equal those of its inputs are kept, all others become dims that are bound after it has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import DeviceError, UserError
from anydim.base.onnx_notation import NUMBERS
from anydim.compiler.frontends.onnx.file.order import names_read
from anydim.compiler.frontends.onnx.file.reading import Opened
from anydim.compiler.frontends.onnx.file.schema import schema_of
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, is_external, read_tensor
from anydim.compiler.frontends.onnx.graphs.definitions import resolve_references
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken
from anydim.compiler.graph.nodes import Node
from anydim.compiler.graph.regions import FALLBACK, FOREIGN, Foreign
from anydim.lang.tree import TensorType
from anydim.runtime.delegated import Port
from anydim.runtime.devices.engines.once import evaluate_once
from anydim.runtime.devices.engines.onnxruntime import InferredResult, OnnxRuntime
from anydim.runtime.devices.engines.table import open_engine
from anydim.sizes import Size, as_size

_TRIED = (2, 1, 3)  # sizes of open dims in the runs that determine ranks
IR_VERSION = 10


def add_foreign_node(names: Names, proto: Any, label: str, why: str) -> None:
    """Add a node that onnxruntime runs in place of a node that was rejected for the reason `why`.

    Raises Unsupported if onnxruntime cannot run it either.
    """
    whole = resolve_references(proto, names.attributes)
    given = {name: _value(names, name) for name in dict.fromkeys(names_read([whole]))}
    model = _Model(names, whole, given)
    kinds = model.kinds(label)
    values = [names.value_name(name) for name in model.outputs]
    standard = proto.domain in ("", "ai.onnx")
    operator = proto.op_type if standard else f"{proto.domain}.{proto.op_type}"
    record = Foreign(FALLBACK, model.text, tuple(model.inputs), tuple(model.outputs), operator, why)
    source = f"{names.model.name}: {label}"
    node = names.emitter.region(
        FOREIGN, tuple(model.inputs.values()), dict(zip(values, kinds)), record, source
    )
    names.emitter.commit([node])
    names.held.update(zip(model.outputs, values))


def add_foreign_model(names: Names, opened: Opened, inputs: Sequence[str], why: str) -> list[str]:
    """Add a node that onnxruntime runs in place of all nodes of a model; returns the results.

    Raises Unsupported if it cannot.
    """
    if names.model.failures or any(not isinstance(names.held[name], str) for name in names.held):
        raise Unsupported("an input is no tensor")
    model = _Whole(names, opened, inputs)
    kinds = model.kinds("")
    record = Foreign(
        FALLBACK, model.text, tuple(model.inputs), tuple(model.outputs), "the whole model", why
    )
    results = dict(zip(model.outputs, kinds))
    node = names.emitter.region(FOREIGN, tuple(inputs), results, record, opened.name)
    names.emitter.commit([node])
    return list(results)


def describe_foreign(node: Node) -> str:
    """Describe a node that an engine runs, for `explain`."""
    region = node.region
    assert isinstance(region, Foreign)
    source = node.source.partition(": ")[2] or node.source
    return f"{source} ({region.operator}) runs in {region.engine}: {region.why}"


class _Model:
    """A node as an ONNX model with its constants inside; `inputs` maps its inputs to values."""

    def __init__(self, names: Names, proto: Any, given: Mapping[str, str]) -> None:
        import onnx

        self.onnx, self.names, self.proto = onnx, names, proto
        emitter = names.emitter
        held = {name: _contents(emitter, value) for name, value in given.items()}
        self.constants = {name: array for name, array in held.items() if array is not None}
        self.inputs = {name: v for name, v in given.items() if name not in self.constants}
        self.outputs = self._results()
        self.types = {name: emitter.types[value] for name, value in self.inputs.items()}
        self.sizes: dict[str, Size] = {}  # by the names of dims in the model
        self.engine = open_engine(FALLBACK)
        inputs = [self._declare(name, kind) for name, kind in self.types.items()]
        self.text = self._serialise(inputs, [onnx.ValueInfoProto(name=n) for n in self.outputs])

    def _results(self) -> list[str]:
        return [name for name in self.proto.output if name]

    def _declare(self, name: str, kind: TensorType) -> Any:
        if kind.dtype not in NUMBERS or (kind.dtype.stored and kind.dtype.bits < 8):
            raise Unsupported(f"its input '{name}' is {kind}")
        shape: list[int | str] = []
        for size in kind.shape:
            number = size.constant
            if number is None:
                known = {each: text for text, each in self.sizes.items()}
                shape.append(known.get(size, f"d{len(self.sizes)}"))
                self.sizes.setdefault(str(shape[-1]), size)
            else:
                shape.append(number)
        return self.onnx.helper.make_tensor_value_info(name, NUMBERS[kind.dtype], shape)

    def _serialise(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
        helper, model = self.onnx.helper, self.names.model
        kept = [
            self.onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()
        ]
        graph = helper.make_graph([self.proto], "node", inputs, outputs, kept)
        opsets = [helper.make_opsetid("", self._opset())]
        opsets += [helper.make_opsetid(name, number) for name, number in model.domains.items()]
        domains = {self.proto.domain, *model.domains, "", "ai.onnx"}
        if self.proto.domain not in {*model.domains, "", "ai.onnx"}:
            opsets.append(helper.make_opsetid(self.proto.domain, 1))
        functions = [each.proto for each in model.functions.values()]
        functions = [each for each in functions if each.domain in domains]
        made = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, functions=functions
        )
        text: bytes = made.SerializeToString(deterministic=True)
        return text

    def _opset(self) -> int:
        """The opset that introduced the operator's version: onnxruntime may lack later ones."""
        inner = any(a.HasField("g") or a.graphs for a in self.proto.attribute)
        schema = None
        if self.proto.domain in ("", "ai.onnx") and not inner:
            schema = schema_of(self.proto.op_type, self.names.opset)
        return self.names.opset if schema is None else int(schema.since_version)

    def kinds(self, label: str) -> list[TensorType]:
        """The types of the results; Unsupported if onnxruntime rejects the model."""
        assert isinstance(self.engine, OnnxRuntime)
        try:
            inferred = self.engine.results(self.text)
        except DeviceError as error:
            raise Unsupported(error.problem) from None
        dtypes = [_dtype(name, each) for name, each in zip(self.outputs, inferred)]
        ranks = [len(each.shape) for each in inferred]
        if not all(ranks):  # a scalar, or unknown
            ranks = self._ranks(dtypes)
        return [
            TensorType(dtype, tuple(self._sizes(name, each, ranks[number])))
            for number, (name, dtype, each) in enumerate(zip(self.outputs, dtypes, inferred))
        ]

    def _sizes(self, name: str, inferred: InferredResult, rank: int) -> Iterator[Size]:
        shape: Sequence[int | str | None] = inferred.shape or [None] * rank
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                yield as_size(size)
            elif size in self.sizes:
                yield self.sizes[size]
            else:
                yield self.names.emitter.dim(f"{name.rsplit('/', 1)[-1]}.{axis}")

    def _ranks(self, dtypes: Sequence[DType]) -> list[int]:
        """The ranks of the results, from runs on sample data: an empty shape may mean unknown.

        Raises Unsupported if no sample runs, and if sizes decide the ranks, as a Reshape to an
        input with k elements: the graph declares one rank for every call.
        """
        ports = [Port(name, kind.dtype, kind.rank) for name, kind in self.types.items()]
        made = [Port(name, dtype, 0) for name, dtype in zip(self.outputs, dtypes)]
        problem, found = "", dict[tuple[int, ...], Sequence[Sequence[int]]]()
        for size in _TRIED:
            shapes = self._sample_shapes(size)
            for filled in (numpy.zeros, _counting):
                arrays = [filled(s, k.dtype.numpy) for s, k in zip(shapes, self.types.values())]
                try:
                    results = evaluate_once(FALLBACK, self.text, ports, arrays, made)
                except UserError as error:
                    problem = problem or error.problem
                else:
                    found.setdefault(tuple(array.ndim for array in results), shapes)
                    break
        if not found:
            raise Unsupported(f"how many axes its results have is not known: {problem}")
        if len(found) > 1:
            cases = (f"{list(ranks)} for inputs {shapes}" for ranks, shapes in found.items())
            raise Unsupported(f"sizes decide how many axes its results have: {', '.join(cases)}")
        return list(*found)

    def _sample_shapes(self, size: int) -> list[list[int]]:
        """The shapes of the inputs with one size for all dims, as far as bounds allow it."""
        dims = self.names.emitter.box.dims
        at = {d.name: max(d.lo, size if d.hi is None else min(size, d.hi)) for d in dims}
        return [[each.evaluate(at) for each in kind.shape] for kind in self.types.values()]


class _Whole(_Model):
    """A complete model with its weights, and inputs declared as in the graph."""

    def __init__(self, names: Names, opened: Opened, inputs: Sequence[str]) -> None:
        self._opened = opened
        super().__init__(names, opened.proto.graph, {name: name for name in inputs})

    def _results(self) -> list[str]:
        return [value.name for value in self.proto.output]

    def _serialise(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
        made = self.onnx.ModelProto()
        made.CopyFrom(self._opened.proto)
        made.ir_version = max(made.ir_version, IR_VERSION)  # older ones declare weights as inputs
        del made.graph.input[:]
        made.graph.input.extend(inputs)
        for number, tensor in enumerate(made.graph.initializer):
            raw = self._opened.weights.get(number)
            if raw is not None or is_external(tensor):
                array = read_tensor(tensor, self._opened.folder, tensor.name, raw)
                tensor.CopyFrom(self.onnx.numpy_helper.from_array(array, tensor.name))
        try:
            text: bytes = made.SerializeToString(deterministic=True)
        except ValueError:  # protobuf's limit
            raise Unsupported("its weights are more than 2 GiB") from None
        return text


def _counting(shape: Sequence[int], dtype: numpy.dtype) -> numpy.ndarray:
    """The array 0, 1, 2, ...: valid as axes and indices."""
    return numpy.arange(prod(shape)).reshape(shape).astype(dtype)


def _value(names: Names, name: str) -> str:
    """The value of an input; Unsupported for lists, and for values that could not be imported."""
    try:
        held: Binding | None = names.lookup(name)
    except KeyError:
        raise Unsupported(f"its input '{name}' is not defined") from None
    if isinstance(held, Broken):
        raise Unsupported(f"its input '{name}' could not be imported")
    if not isinstance(held, str):
        raise Unsupported(f"its input '{name}' is no tensor")
    return held


def _contents(emitter: Any, value: str) -> numpy.ndarray | None:
    """The contents of a value that is known and holds numbers."""
    if value not in emitter.known or emitter.known[value].has_sizes:
        return None
    array: numpy.ndarray = emitter.known[value].array
    return array


def _dtype(name: str, inferred: InferredResult) -> DType:
    if inferred.dtype not in DTYPES:
        raise Unsupported(f"its result '{name}' is {inferred.text}")
    return DTYPES[inferred.dtype]

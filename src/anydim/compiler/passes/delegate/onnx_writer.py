"""Writer of ONNX nodes over the values of a subgraph, used by the rows of operators.

Dynamic sizes become int64 inputs of the model, one for each vector of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, DType
from anydim.base.onnx_notation import NUMBERS, type_name
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.tree import TensorType
from anydim.sizes import Size, as_size

OPSET = 21
CODES: Mapping[str, int] = {dtype.name: number for dtype, number in NUMBERS.items()}
_FAR = (1 << 63) - 1


class Refused(Exception):
    """The reason why a node cannot be exported to ONNX."""


class Writer:
    """A model under construction; `names` maps the graph's values to names in the model."""

    def __init__(self, graph: Graph, names: Mapping[str, str]) -> None:
        import onnx

        self.onnx = onnx
        self.graph, self.names = graph, names
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.vectors: dict[tuple[Size, ...], str] = {}
        self._count = 0
        self._numbers: dict[tuple[str, bytes, tuple[int, ...]], str] = {}

    def fresh(self) -> str:
        """A new unique name."""
        self._count += 1
        return f"t{self._count}"

    def add(self, name: str, inputs: Iterable[str], outputs: Sequence[str], **more: Any) -> str:
        """Add an ONNX node; return its first result."""
        given = {key: value for key, value in more.items() if value is not None}
        node = self.onnx.helper.make_node(name, list(inputs), list(outputs), **given)
        self.nodes.append(node)
        return outputs[0]

    def add_inner(self, name: str, inputs: Iterable[str], **more: Any) -> str:
        """Add an intermediate node; return its result."""
        return self.add(name, inputs, [self.fresh()], **more)

    def number(self, values: Any, dtype: DType) -> str:
        """The name of a constant."""
        return self.array(numpy.asarray(values, dtype.numpy))

    def array(self, array: numpy.ndarray) -> str:
        """The name of a constant of any shape; equal constants are shared."""
        key = (array.dtype.name, array.tobytes(), array.shape)
        if key not in self._numbers:
            name = self._numbers[key] = self.fresh()
            self.constants[name] = tensor(self.onnx, name, array)
        return self._numbers[key]

    def sizes(self, values: Iterable[Any]) -> str:
        """The name of an int64 vector: a constant, or an input of the model."""
        wanted = tuple(as_size(value) for value in values)
        numbers = [size.constant for size in wanted]
        if None not in numbers:
            held = [min(max(n, -_FAR), _FAR) for n in numbers if n is not None]
            return self.array(numpy.array(held, numpy.int64))
        if wanted not in self.vectors:
            self.vectors[wanted] = self.fresh()
        return self.vectors[wanted]


class Call:
    """A node of the graph for its row: names in the model, types and attributes."""

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer, self.node = writer, node
        self.attributes = operator(node.operator).complete(node.attributes)
        self.inputs = ["" if name is None else writer.names[name] for name in node.inputs]
        self.outputs = [writer.names[name] for name in node.outputs]
        self.kinds: list[TensorType] = [writer.graph.types[name] for name in node.given]
        self.results: list[TensorType] = [writer.graph.types[name] for name in node.outputs]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def add(self, name: str, inputs: Iterable[str] | None = None, **more: Any) -> None:
        """Add the ONNX node that makes the results; Refused if ONNX lacks it for their types."""
        given = list(self.inputs if inputs is None else inputs)
        self._check_types(name, given)
        self.writer.add(name, given, self.outputs, **more)

    def _check_types(self, name: str, inputs: Sequence[str]) -> None:
        formals = self.writer.onnx.defs.get_schema(name, OPSET).inputs
        kinds = dict(zip(filter(None, self.inputs), self.kinds))
        for number, value in enumerate(inputs):
            if value not in kinds:
                continue
            dtype = kinds[value].dtype
            formal = formals[min(number, len(formals) - 1)]  # the last one may be variadic
            if f"tensor({type_name(CODES.get(dtype.name, 0))})" not in formal.types:
                raise Refused(f"ONNX has no {name} of {dtype}")

    def add_inner(self, name: str, *inputs: str, **more: Any) -> str:
        """Add an intermediate node; return its result."""
        return self.writer.add_inner(name, inputs, **more)

    def number(self, value: Any, kind: TensorType | None = None) -> str:
        """A scalar constant of the first input's dtype, or of `kind`."""
        return self.writer.number(value, (kind or self.kinds[0]).dtype)

    def integers(self, name: str) -> list[int] | None:
        """An attribute with a number per axis; None if not given."""
        value = self[name]
        if value is None:
            return None
        if isinstance(value, str):
            raise Refused(f"its {name} depend on sizes")
        found = [as_size(item).constant for item in value]
        if any(item is None for item in found):
            raise Refused(f"its {name} are not constant")
        return [item for item in found if item is not None]


def tensor(onnx: Any, name: str, array: numpy.ndarray) -> Any:
    """Convert an array to a TensorProto."""
    code = CODES.get(array.dtype.name)
    if code is None or array.dtype.itemsize != _bytes(array.dtype.name):
        raise Refused(f"a constant of type {array.dtype.name}")
    made = onnx.TensorProto()
    made.name, made.data_type = name, code
    made.dims.extend(array.shape)
    made.raw_data = numpy.ascontiguousarray(array).tobytes()
    return made


def _bytes(name: str) -> int:
    """Bytes of an element in ONNX; 0 if elements are smaller than a byte."""
    return 1 if name == "bool" else DTYPES[name].bits // 8

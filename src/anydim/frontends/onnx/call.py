"""One ONNX node while its row of the operator table builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy

from anydim.base.dtypes import DType
from anydim.frontends.onnx.emitting import Emitter, Known
from anydim.frontends.onnx.tensors import Unsupported
from anydim.graph.nodes import Node
from anydim.lang.tree import TensorType
from anydim.sizes import Size, Truth, as_size, prove

Result: TypeAlias = "str | Known"


@dataclass
class Call:
    """An ONNX node: its inputs and attributes, and the nodes that stand for it."""

    emitter: Emitter
    operator: str
    opset: int
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    source: str
    nodes: list[Node] = field(default_factory=list)

    # ---- inputs ----

    def given(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> str:
        """The value of an input that must be there."""
        name = self.inputs[position] if position < len(self.inputs) else None
        if name is None:
            raise Unsupported(f"input {position} is missing")
        return name

    def type(self, position: int) -> TensorType:
        return self.emitter.types[self.input(position)]

    def shape(self, position: int) -> tuple[Size, ...]:
        return self.type(position).shape

    def known(self, position: int) -> numpy.ndarray:
        """The contents of an input; Unsupported when only a run can tell them."""
        name = self.input(position)
        if name not in self.emitter.known:
            raise Unsupported(f"its input '{name}' is data; only sizes and constants can be used")
        return self.emitter.known[name].array

    def sizes(self, position: int) -> tuple[Size, ...]:
        """The contents of a vector (or one number) of integers, as sizes."""
        array = self.known(position)
        if array.ndim > 1 or array.dtype.kind not in "iuO":
            raise Unsupported(f"its input '{self.input(position)}' is no vector of integers")
        return tuple(map(as_size, array.reshape(-1).tolist()))

    def integers(self, position: int) -> tuple[int, ...]:
        """The contents of a vector of integers that depend on no dim."""
        values = [size.constant for size in self.sizes(position)]
        if any(value is None for value in values):
            raise Unsupported(f"its input '{self.input(position)}' depends on a dim")
        return tuple(value for value in values if value is not None)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, its default in the standard, or `default`."""
        return self.attributes.get(name, default)

    # ---- results ----

    def emit(self, name: str, /, *inputs: str | None, **attributes: Any) -> str:
        """The one result of a new node of a library operator."""
        return self.emit_many(name, 1, *inputs, **attributes)[0]

    def emit_many(
        self, name: str, results: int, /, *inputs: str | None, **attributes: Any
    ) -> list[str]:
        """The results of a new node of a library operator."""
        stem = f"{self.outputs[0] or self.source}/{name}"
        outputs = tuple(self.emitter.fresh(stem) for _ in range(results))
        node = self.emitter.node(name, inputs, outputs, attributes, self.source)
        self.nodes.append(node)
        return list(outputs)

    def number(self, value: Any, dtype: DType) -> str:
        """A constant of one number."""
        name = self.emitter.fresh(f"{self.outputs[0] or self.source}/constant")
        try:
            array = numpy.array(value, dtype.numpy)
        except (OverflowError, ValueError):
            raise Unsupported(f"the number {value} as {dtype}") from None
        self.emitter.add_known(name, Known.of(array), self.source)
        return name

    def proved(self, left: Size | int, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self.emitter.box) is Truth.PROVED

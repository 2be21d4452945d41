"""A family: one model of one operator, and the sizes at which it is measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy
import onnx
import onnx.parser

Sizes = Mapping[str, int]
Peer = Callable[..., Any]

HEADER = '<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>'
_TENSOR = re.compile(r"(\w+)\[(.*)\] (\w+)$")
_NUMBERS = re.compile(r"(\w+) := (\w+(?:\[\d*\])? *\{[^}]*\})")
_DTYPES: Mapping[str, Any] = {
    "float": numpy.float32, "double": numpy.float64, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
OPSET = 21


@dataclass(frozen=True)
class Family:
    """`nodes` is ONNX's text syntax and makes y; `k := int64[2] {1,2}` is a constant.

    Tensors are written as there: "float[n,3] x"; sizes of inputs may be names, which are free.
    `constants` are drawn once. Floats are uniform in `spread`, integers below `below`, which may
    name a size. `numpy` takes the inputs and is the peer where onnxruntime has no such kernel.
    `steps` counts what is done to one element after the other, which no plan tells: of sorting.
    """

    name: str
    nodes: str
    inputs: tuple[str, ...]
    sizes: tuple[Sizes, ...]
    area: str = ""
    constants: tuple[str, ...] = ()
    below: Mapping[str, int | str] = field(default_factory=dict)
    spread: tuple[float, float] = (0.1, 0.9)
    numpy: Peer | None = None
    steps: Callable[[Sizes], float] | None = None
    opset: int = OPSET

    def model(self) -> bytes:
        """The file that both engines get."""
        given = ", ".join(self.inputs)
        nodes = _NUMBERS.sub(r"\1 = Constant <value = \2> ()", self.nodes)
        text = f"{HEADER.format(opset=self.opset)} g ({given}) => (y) {{ {nodes} }}"
        made = onnx.parser.parse_model(text)
        random = numpy.random.default_rng(0)
        for constant in self.constants:
            name, array = self.drawn(constant, {}, random)
            made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return onnx.shape_inference.infer_shapes(made).SerializeToString()

    @property
    def kept(self) -> int:
        """Bytes of the constants, which every call reads."""
        random = numpy.random.default_rng(0)
        return sum(self.drawn(each, {}, random)[1].nbytes for each in self.constants)

    def feeds(self, sizes: Sizes) -> dict[str, numpy.ndarray]:
        """Inputs at these sizes; always the same ones."""
        random = numpy.random.default_rng(1)
        return dict(self.drawn(tensor, sizes, random) for tensor in self.inputs)

    def drawn(
        self, tensor: str, sizes: Sizes, random: numpy.random.Generator
    ) -> tuple[str, numpy.ndarray]:
        """The name of a tensor, and random values at 64-byte aligned addresses."""
        kind, axes, name = parts(tensor)
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in axes]
        dtype = numpy.dtype(_DTYPES.get(kind) or kind)
        if name in self.below or dtype.kind in "iub":
            below = self.below.get(name, 2 if dtype.kind == "b" else 7)
            values = random.integers(0, sizes[below] if isinstance(below, str) else below, shape)
        else:
            values = random.uniform(*self.spread, shape)
        return name, aligned(numpy.asarray(values).astype(dtype))


def parts(tensor: str) -> tuple[str, list[str], str]:
    """The type, the axes and the name of "float[n,3] x"."""
    found = _TENSOR.match(tensor)
    assert found, tensor
    return found[1], [axis.strip() for axis in found[2].split(",") if axis.strip()], found[3]


def aligned(array: numpy.ndarray) -> numpy.ndarray:
    """The array at a 64-byte boundary."""
    block = numpy.empty(array.nbytes + 64, numpy.uint8)
    start = -block.ctypes.data % 64
    view = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def grid(**axes: Sequence[int]) -> tuple[Sizes, ...]:
    """Every combination of these sizes."""
    return tuple(dict(zip(axes, values)) for values in product(*axes.values()))


def at(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Sizes one by one: at("n m", (1, 2), (3, 4))."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def typed(family: Family, *dtypes: str) -> Iterator[Family]:
    """The family with T replaced by each of these types."""
    for dtype in dtypes:
        yield replace(
            family,
            name=f"{family.name} {dtype}",
            nodes=re.sub(r"\bT\b", dtype, family.nodes),
            inputs=tuple(re.sub(r"\bT\b", dtype, tensor) for tensor in family.inputs),
            constants=tuple(re.sub(r"\bT\b", dtype, tensor) for tensor in family.constants),
        )

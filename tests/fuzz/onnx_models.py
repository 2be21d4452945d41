"""Random ONNX models: a few nodes of many operators over inputs with free dims.

Values know their type and shape, as sizes over the dims. Discontinuous functions (comparisons,
casts to integers, places of extremes) are only taken of `exact` values, those that rounding cannot
move, so that two engines must agree on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from anydim.sizes import Dim, Size, as_size, product

OPSET, IR_VERSION = 20, 10  # what the peers know
DIMS = ("n", "m", "k")
TYPES = {
    "f": TensorProto.FLOAT, "l": TensorProto.INT64, "b": TensorProto.BOOL, "u": TensorProto.UINT8,
    "i": TensorProto.INT32, "c": TensorProto.INT8, "h": TensorProto.FLOAT16,
}  # fmt: skip
MOST_RANK = 5
FIXED = (1, 2, 3, 4, 5, 8, 16, 17)


@dataclass(frozen=True)
class Known:
    """A value: `kind` is a letter of TYPES."""

    name: str
    kind: str
    shape: tuple[Size, ...]
    exact: bool

    @property
    def rank(self) -> int:
        return len(self.shape)


class Models:
    """One random model under construction."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = numpy.random.default_rng(seed)
        self.dims = {name: Dim(name).size for name in DIMS}
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[Known] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: list[Known] = []

    # ---- choices -------------------------------------------------------------------------------

    def one(self, options: Any) -> Any:
        return self.random.choice(tuple(options))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def axis(self, x: Known) -> int:
        return self.random.randrange(x.rank)

    def signed(self, axis: int, rank: int) -> int:
        """The axis, perhaps counted from the end."""
        return axis - rank if self.chance(0.3) else axis

    def pick(
        self, kind: str = "f", low: int = 0, high: int = MOST_RANK, exact: bool = False,
        wanted: Callable[[Known], bool] = lambda value: True,
    ) -> Known:  # fmt: skip
        """A value that fits, recent ones rather than old; a new input where there is none."""
        fitting = [
            v
            for v in self.values
            if v.kind == kind and low <= v.rank <= high and (v.exact or not exact) and wanted(v)
        ]
        if fitting and not self.chance(0.07):
            return self.one(fitting[-2:] if self.chance(0.7) else fitting)
        made = self.input(kind, self.shape(max(low, 1), min(high, 4)))
        if not wanted(made):
            raise LookupError
        return made

    def shape(self, low: int, high: int) -> tuple[Size, ...]:
        """A shape whose last axis, or second of a picture, is often fixed."""
        rank = self.random.randint(low, max(low, high))
        sizes = [self.one((*self.dims.values(), as_size(self.one(FIXED)))) for _ in range(rank)]
        if self.chance(0.7):
            sizes[1 if rank == 4 else -1] = as_size(self.one(FIXED))
        return tuple(sizes)

    # ---- new values ----------------------------------------------------------------------------

    def input(self, kind: str, shape: tuple[Size, ...]) -> Known:
        made = Known(f"x{len(self.inputs)}", kind, shape, True)
        self.inputs.append(made)
        self.values.append(made)
        return made

    def constant(self, array: Any) -> str:
        """The name of a new initializer."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def weights(self, *shape: int, scale: float = 0.5) -> str:
        return self.constant((self.numbers.standard_normal(shape) * scale).astype(numpy.float32))

    def integers(self, *numbers: int) -> str:
        return self.constant(numpy.array(numbers, numpy.int64))

    def node(
        self, operator: str, inputs: list[str], kind: str, shape: Any, exact: bool = False,
        **attributes: Any,
    ) -> Known:  # fmt: skip
        """The one result of a new node."""
        return self.nodes_of(operator, inputs, [(kind, shape)], exact, **attributes)[0]

    def nodes_of(
        self, operator: str, inputs: list[str], made: list[tuple[str, Any]], exact: bool = False,
        **attributes: Any,
    ) -> list[Known]:  # fmt: skip
        """The results of a new node."""
        start = sum(len(node.output) for node in self.nodes)
        results = [
            Known(f"v{start + i}", kind, tuple(as_size(size) for size in shape), exact)
            for i, (kind, shape) in enumerate(made)
        ]
        names = [value.name for value in results]
        self.nodes.append(
            helper.make_node(operator, inputs, names, f"{operator}_{start}", **attributes)
        )
        self.values += results
        return results

    # ---- the whole -----------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """Every value that no node reads is a result."""
        read = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v not in self.inputs]
        results = [v for v in made if v.name not in read] or made[-1:]
        graph = helper.make_graph(
            self.nodes, "random",
            [declared(value) for value in self.inputs],
            [helper.make_tensor_value_info(v.name, TYPES[v.kind], None) for v in results],
            self.constants,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def declared(value: Known) -> onnx.ValueInfoProto:
    shape = [str(s) if s.constant is None else s.constant for s in value.shape]
    return helper.make_tensor_value_info(value.name, TYPES[value.kind], shape)


def fixed(size: Size) -> bool:
    return bool(size.constant)


def broadcast(left: Known, right: Known) -> tuple[Size, ...] | None:
    """The shape of both together where they meet at every size."""
    rank = max(left.rank, right.rank)
    pairs = zip(*((as_size(1),) * (rank - v.rank) + v.shape for v in (left, right)))
    shape = []
    for a, b in pairs:
        if a != b and 1 not in (a.constant, b.constant):
            return None
        shape.append(b if a.constant == 1 else a)
    return tuple(shape)


def elements(value: Known) -> Size:
    return product(value.shape)

"""Random ONNX models whose data is made of sizes, in every integer type: it wraps there.

Sizes are cast, added, multiplied, divided, compared and summed in all integer types, go through
floats, and decide other sizes. Results have the types and bits of onnx's reference, and

    fixed     the model imported with its dims fixed gives what the free one gives at these sizes
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.base.errors import UserError
from tests.fuzz.judge import said
from tests.fuzz.onnx_peers import text
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

OPSET, IR_VERSION = 20, 10
INTEGERS = {
    "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64,
}  # fmt: skip
FLOATS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
}
ALL = INTEGERS | FLOATS | {"int8": TensorProto.INT8, "bool": TensorProto.BOOL}
POINTS = (  # of n and m
    (3, 5), (1, 1), (0, 7), (300, 2), (200, 3), (129, 4), (7, 32769), (65541, 1), (50_000, 1),
    (2000, 1), (2, 70_000), (0, 2**31 + 5), (0, 2**32 + 9),
)  # fmt: skip
CALLS, STEPS = 4, 9
FIXED = 2  # calls that are made of a model with fixed dims, too


@dataclass
class Maker:
    """A model under construction: `values` are scalars or vectors, by the name of their type."""

    random: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: list[tuple[str, str]] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)

    def node(
        self, operator: str, *inputs: str, dtype: str = "", keep: bool = True, **extra: object
    ) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], f"{operator}_{name}", **extra))
        if dtype and keep:
            self.values.append((name, dtype))
        return name

    def constant(self, value: object, dtype: str) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.array(value, dtype), name))
        return name

    def number(self, dtype: str, least: int = 0) -> str:
        low, high = numpy.iinfo(dtype).min, int(numpy.iinfo(dtype).max)
        chosen = self.random.choice((1, 2, 3, 7, 100, high, high // 3, low, 2**31 - 1, 2654435761))
        return self.constant(max(chosen if low <= chosen <= high else 5, least), dtype)

    def integer(self, dtype: str = "") -> tuple[str, str]:
        """A value of integers; of a type where one is named."""
        found = [v for v in self.values if v[1] == (dtype or v[1]) and v[1] in INTEGERS]
        if found:
            return self.random.choice(found[-4:])
        name, _ = self.integer()
        return self.cast(name, dtype), dtype

    def cast(self, name: str, dtype: str, keep: bool = True) -> str:
        return self.node("Cast", name, dtype=dtype, keep=keep, to=ALL[dtype])

    # ---- steps ---------------------------------------------------------------------------------

    def narrow(self) -> None:
        self.cast(self.integer()[0], self.random.choice(tuple(INTEGERS)))

    def binary(self) -> None:
        name, dtype = self.integer()
        other = self.number(dtype) if self.random.random() < 0.5 else self.integer(dtype)[0]
        pair = [name, other] if self.random.random() < 0.7 else [other, name]
        operator = self.random.choice(("Add", "Sub", "Mul", "Mul", "Min", "Max"))
        self.node(operator, *pair, dtype=dtype)

    def divide(self) -> None:
        name, dtype = self.integer()
        operator = self.random.choice(("Div", "Div", "Mod"))
        self.node(operator, name, self.number(dtype, 1), dtype=dtype)

    def unary(self) -> None:
        name, dtype = self.integer()
        operator = "Abs" if dtype.startswith("u") else self.random.choice(("Abs", "Neg"))
        self.node(operator, name, dtype=dtype)

    def choose(self) -> None:
        name, dtype = self.integer()
        relation = self.random.choice(("Less", "Greater", "Equal", "LessOrEqual"))
        flag = self.node(relation, name, self.number(dtype))
        self.node("Where", flag, name, self.number(dtype), dtype=dtype)

    def join(self) -> None:
        dtype = self.integer()[1]
        parts = [
            self.node("Reshape", self.integer(dtype)[0], self.constant([-1], "int64"))
            for _ in range(2)
        ]
        ends = (self.constant([end], "int64") for end in (0, 2))  # one or two elements broadcast
        self.node("Slice", self.node("Concat", *parts, axis=0), *ends, dtype=dtype)

    def reduce(self) -> None:
        dtype = self.random.choice(("int32", "int64", "uint32", "uint64"))
        name = self.node("Reshape", self.integer(dtype)[0], self.constant([-1], "int64"))
        if dtype.startswith("i") and self.random.random() < 0.3:
            self.node("CumSum", name, self.constant(0, "int64"), dtype=dtype)
            return
        operator = self.random.choice(("ReduceProd", "ReduceSum"))
        self.node(operator, name, dtype=dtype, keepdims=self.random.choice((0, 1)))

    def real(self) -> None:
        """Through a float type that may round; back where it is far inside the integer type."""
        name, _ = self.integer()
        dtype = self.random.choice(tuple(FLOATS))
        small = self.node("Mod", self.cast(name, "int64", False), self.constant(3001, "int64"))
        half = self.node("Mul", self.cast(small, dtype, False), self.constant(0.5, dtype))
        whole = self.node(self.random.choice(("Floor", "Ceil")), half)
        self.cast(whole, self.random.choice(("int16", "int32", "int64")))
        self.results.append((self.cast(name, dtype, False), dtype))

    def size(self) -> None:
        """A tensor whose size is a value."""
        name, dtype = self.integer()
        if dtype not in ("uint8", "int8", "uint16", "int16"):
            name = self.node("Mod", name, self.constant(11, dtype))
        if self.random.random() < 0.3 and dtype in ("int16", "int32", "int64"):
            name = self.node("ReduceMax", self.cast(name, "int32", False), keepdims=0)
            name = self.cast(name, dtype, False)
            zero, one = self.constant(0, dtype), self.constant(1, dtype)
            self.results.append((self.node("Range", zero, name, one), dtype))
            return
        wide = self.node("Reshape", self.cast(name, "int64", False), self.constant([-1], "int64"))
        wide = self.node(
            "Abs", self.node("Slice", wide, *(self.constant([k], "int64") for k in (0, 1)))
        )
        made = self.random.choice(
            (
                self.expand,
                self.fill,
                self.tile,
                self.slice,
                self.pad,
                self.hot,
                self.top,
                self.taken,
            )
        )(wide)
        self.results.append((made, "int8"))
        self.node("Shape", made, dtype="int64")

    # ---- tensors whose size is the one element of a vector -------------------------------------

    def expand(self, size: str) -> str:
        return self.node("Expand", self.constant([3], "int8"), size)

    def fill(self, size: str) -> str:
        value = helper.make_tensor("v", TensorProto.INT8, [1], [2])
        return self.node("ConstantOfShape", size, value=value)

    def tile(self, size: str) -> str:
        return self.node("Tile", self.constant([1, 2], "int8"), size)

    def slice(self, size: str) -> str:
        values = self.constant(numpy.arange(40), "int8")
        return self.node("Slice", values, self.constant([0], "int64"), size)

    def pad(self, size: str) -> str:
        pads = self.node("Concat", size, self.constant([1], "int64"), axis=0)
        return self.node("Pad", self.constant([1, 2], "int8"), pads)

    def hot(self, size: str) -> str:
        depth = self.node("Add", size, self.constant([1], "int64"))
        depth = self.node("ReduceMax", depth, keepdims=0)
        places, values = self.constant([0, 3], "int64"), self.constant([4, 5], "int8")
        made = self.node("OneHot", places, depth, values)
        return self.node("Reshape", made, self.constant([-1], "int64"))

    def top(self, size: str) -> str:
        count = self.node("Min", size, self.constant([5], "int64"))
        values = self.constant(numpy.arange(5), "int64")
        self.nodes.append(
            helper.make_node("TopK", [values, count], [name := f"v{len(self.nodes)}", ""])
        )
        return self.cast(name, "int8", False)

    def taken(self, size: str) -> str:
        """In a branch of an If that data takes."""
        then = helper.make_node("Expand", ["three", size], ["then"])
        other = helper.make_node("Identity", ["three"], ["else"])
        three = numpy_helper.from_array(numpy.array([3], "int8"), "three")
        bodies = [
            helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=name)], [three])
            for name, nodes in (("then", [then]), ("else", [other]))
        ]
        flag = self.node(
            "Less", self.constant(0, "int64"), self.node("ReduceMax", size, keepdims=0)
        )
        return self.node("If", flag, then_branch=bodies[0], else_branch=bodies[1])

    def model(self) -> onnx.ModelProto:
        results = dict([*self.values, *self.results])
        graph = helper.make_graph(
            self.nodes, "sizes_as_data",
            [helper.make_tensor_value_info("x", TensorProto.INT8, ["n", "m"])],
            [helper.make_tensor_value_info(n, ALL[d], None) for n, d in results.items()],
            self.constants,
        )  # fmt: skip
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )


def random_model(seed: int) -> onnx.ModelProto:
    """The model of a seed."""
    m = Maker(random.Random(seed))
    shape = m.node("Shape", "x", dtype="int64")
    for axis in (0, 1):
        m.node("Gather", shape, m.constant(axis, "int64"), dtype="int64")
    m.node("Size", "x", dtype="int64")
    steps = (
        m.narrow, m.narrow, m.binary, m.binary, m.divide, m.unary, m.choose, m.join, m.reduce,
        m.real, m.size,
    )  # fmt: skip
    for _ in range(STEPS):
        m.random.choice(steps)()
    m.size()
    return m.model()


def static(proto: onnx.ModelProto, feeds: Mapping[str, numpy.ndarray]) -> onnx.ModelProto:
    """The file with the sizes of some inputs in the place of its dims."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    for value in fixed.graph.input:
        if value.name in feeds:
            for axis, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape):
                axis.dim_value = size
    del fixed.graph.value_info[:]
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return fixed


def differing(came: Mapping[str, numpy.ndarray], expected: Mapping[str, numpy.ndarray]) -> str:
    """The first result of another type, shape or bits; '' for none."""
    for name, array in came.items():
        other = numpy.asarray(expected[name])
        if (array.dtype, array.shape) != (other.dtype, other.shape):
            return f"'{name}' is {array.dtype}{array.shape}, expected {other.dtype}{other.shape}"
        if array.tobytes() != other.tobytes():
            return f"'{name}' is {array.ravel()[:4]}, expected {other.ravel()[:4]}"
    return ""


def beyond(error: UserError, point: tuple[int, int]) -> bool:
    """Whether a refusal is one that is written down: of sizes that no tensor with elements has."""
    return max(point) > 2**30 and ("is counted in" in str(error) or "fit 64 bits" in str(error))


def judged(seed: int) -> tuple[str, str]:
    """What is wrong with the model of a seed, and its text; twice '' where nothing is."""
    proto = random_model(seed)
    reference = ReferenceEvaluator(proto)
    names = [value.name for value in proto.graph.output]
    try:
        free = ad.compile(proto)
    except Exception as error:
        return f"compile: {said(error)}", text(proto)
    points = random.Random(seed).sample(POINTS, CALLS)
    for number, point in enumerate(points):
        x = numpy.zeros(point, numpy.int8)
        with numpy.errstate(all="ignore"):
            expected = dict(zip(names, reference.run(None, {"x": x})))
        try:
            came = free(x=x)
            if reason := differing(came, expected):
                return f"value at {point}: {reason}", text(proto)
            if number < FIXED:
                bounded = ad.compile(proto, dims=dict(zip("nm", point)))
                for other in (bounded, ad.compile(static(proto, {"x": x}))):
                    if reason := differing(other(x=x), came):
                        return f"fixed at {point}: {reason}", text(proto)
        except UserError as error:
            if not beyond(error, point):
                return f"refusal at {point}: {said(error)}", text(proto)
    return "", ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the models of these seeds, in order."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS)
        yield Outcome(seed, *judged(seed))

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", text(random_model(seed)))

    return run_each(seeds, small, one, crashed)

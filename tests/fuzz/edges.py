"""Operators of shapes and indices at the edges of what they allow, by two engines beside.

A model is one node on a tensor whose dims are free, with what the node asks for as a constant or as
an input of the call: bounds beyond the ends, negative steps, pads and indices, parts of size 0.
It is compiled once and called at several sizes, 0 and 1 among them. Where onnx's reference and
onnxruntime agree, the results have to be theirs; where they do not, one of theirs. Of empty inputs,
which may end onnxruntime's process, the reference is asked alone. What both refuse may be anything,
what one refuses may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.base.errors import UserError
from tests.fuzz.case import Arrays
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

CALLS = 3
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_ELEMENTS = {"float32": FLOAT, "int64": INT64, "bool": BOOL, "int32": TensorProto.INT32}
# a start below the first element and a step below 0: the standard takes the first element
WRONG_IN_REFERENCE = ("Slice",)
Draw = Callable[[dict[str, int]], Any]  # the array of an input at some sizes


@dataclass
class Edge:
    """A model of one node while it is made; `draws` make the inputs of a call."""

    numbers: numpy.random.Generator
    opset: int = 18
    inputs: list[Any] = field(default_factory=list)
    draws: dict[str, Draw] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)
    largest: int = 8

    def below(self, limit: int) -> int:
        return int(self.numbers.integers(limit))

    def between(self, low: int, high: int) -> int:
        return int(self.numbers.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.numbers.random() < share)

    def one(self, choices: Any) -> Any:
        return choices[self.below(len(choices))]

    def x(self, rank: int, dtype: str = "float32", fixed: dict[int, int] | None = None) -> str:
        """An input of different numbers, each axis a free dim or a small number."""
        name = f"x{len(self.inputs)}"
        axes: list[Any] = []
        for axis in range(rank):
            if fixed and axis in fixed:
                axes.append(fixed[axis])
            elif self.chance(0.75):
                axes.append(self.one([*self.dims, f"d{len(self.dims)}"]))
            else:
                axes.append(self.one((1, 2, 3)))
            if isinstance(axes[-1], str) and axes[-1] not in self.dims:
                self.dims.append(axes[-1])

        def draw(sizes: dict[str, int]) -> Any:
            shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
            count = int(numpy.prod(shape))
            if dtype == "bool":
                return self.numbers.random(shape) < 0.5
            return (self.numbers.permutation(count).reshape(shape) - count // 2).astype(dtype)

        return self.given(name, dtype, axes, draw)

    def given(self, name: str, dtype: str, axes: list[Any], draw: Draw) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, _ELEMENTS[dtype], axes))
        self.draws[name] = draw
        return name

    def numbers_in(self, values: Any, dtype: str = "int64", share: float = 0.5) -> str:
        """Numbers as a constant or, in some cases, as an input of the call."""
        array = numpy.array(values, dtype)
        name = f"c{len(self.constants) + len(self.inputs)}"
        if self.chance(share) or not array.size:  # an axis of 0 of an input is an open one
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        return self.given(name, dtype, list(array.shape), lambda sizes: array)

    def node(self, operator: str, inputs: list[str], results: int = 1, **attributes: Any) -> None:
        names = [f"y{len(self.results) + number}" for number in range(results)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        self.results += names

    def model(self) -> onnx.ModelProto:
        results = [helper.make_empty_tensor_value_info(name) for name in self.results]
        graph = helper.make_graph(self.nodes, "edge", self.inputs, results, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


# ---- operators -----------------------------------------------------------------------------------


def squeeze(e: Edge) -> None:
    rank = e.between(1, 3)
    x = e.x(rank)
    if e.chance(0.5):
        e.opset = e.one((11, 18))
        e.node("Squeeze", [x])
    else:
        axes = sorted({e.between(-rank, rank - 1) % rank for _ in range(2)})
        named = [axis - rank * e.below(2) for axis in axes]
        e.node("Squeeze", [x, e.numbers_in(named, share=1)])


def unsqueeze(e: Edge) -> None:
    rank, more = e.between(0, 3), e.between(1, 2)
    axes = e.numbers.permutation(rank + more)[:more]
    named = [int(axis) - (rank + more) * e.below(2) for axis in axes]
    e.node("Unsqueeze", [e.x(rank), e.numbers_in(named, share=1)])


def reshape(e: Edge) -> None:
    rank = e.between(0, 3)
    shape = [e.one((-1, 0, 1, 1, 2, 3)) if axis else e.one((-1, 0)) for axis in range(e.below(4))]
    while shape.count(-1) > 1:
        shape[shape.index(-1)] = e.one((0, 1))
    allow = {"allowzero": 1} if e.chance(0.2) and -1 not in shape else {}
    e.node("Reshape", [e.x(rank), e.numbers_in(shape)], **allow)


def expand(e: Edge) -> None:
    shape = [e.one((0, 1, 1, 2, 3)) for _ in range(e.below(4))]
    e.node("Expand", [e.x(e.between(0, 3)), e.numbers_in(shape)])


def slice_(e: Edge) -> None:
    rank = e.between(1, 3)
    axes = [int(axis) for axis in e.numbers.permutation(rank)[: e.between(1, rank)]]
    far = (-(2**63), -(2**31), -9, -3, -2, -1, 0, 1, 2, 5, 9, 2**31 - 1, 2**63 - 1)
    starts, ends = ([e.one(far) for _ in axes] for _ in range(2))
    near = (1, 1, 2, 3, -1, -2, -7, 9)
    steps = [e.one((*near, *near, 2**31 - 1, 2**63 - 1, -(2**63))) for _ in axes]
    named = [axis - rank * e.below(2) for axis in axes]
    inputs = [e.x(rank), e.numbers_in(starts), e.numbers_in(ends), e.numbers_in(named, share=1)]
    e.node("Slice", inputs + ([e.numbers_in(steps, share=0.8)] if e.chance(0.8) else []))


def pad(e: Edge) -> None:
    rank = e.between(1, 3)
    mode = e.one(("constant", "constant", "reflect", "edge", "wrap"))
    low = 0 if mode == "wrap" else e.one((0, 0, -2))  # what wraps then, the standard does not say
    pads = [e.between(low, 3) for _ in range(2 * rank)]
    inputs = [e.x(rank), e.numbers_in(pads)]
    if mode == "constant" and e.chance(0.5):
        inputs.append(e.numbers_in(7.5, "float32"))
    e.opset = 19
    e.node("Pad", inputs, mode=mode)


def tile(e: Edge) -> None:
    rank = e.between(0, 3)
    e.node("Tile", [e.x(rank), e.numbers_in([e.below(4) for _ in range(rank)])])


def concat(e: Edge) -> None:
    rank = e.between(1, 3)
    axis = e.below(rank)
    others = {place: e.between(0, 3) for place in range(rank) if place != axis}
    parts = [e.x(rank, fixed=others) for _ in range(e.between(1, 4))]
    e.node("Concat", parts, axis=axis - rank * e.below(2))


def split(e: Edge) -> None:
    rank = e.between(1, 3)
    axis, count = e.below(rank), e.between(1, 4)
    if e.chance(0.5):
        e.node("Split", [e.x(rank)], count, axis=axis, num_outputs=count)
        return
    parts = [e.below(4) for _ in range(count)]
    e.node("Split", [e.x(rank, fixed={axis: sum(parts)}), e.numbers_in(parts)], count, axis=axis)


def _indices(e: Edge, x: str, axis: int, shape: list[Any], spare: int = 0) -> str:
    """Indices along an axis of x, counted from either end."""

    def draw(sizes: dict[str, int]) -> Any:
        at = e.last[x].shape[axis] - spare
        own = tuple(sizes[size] if isinstance(size, str) else size for size in shape)
        if at < 1:
            own = tuple(0 for _ in own) or own
        return e.numbers.integers(-at, max(at, -at + 1), own)

    return e.given(f"i{len(e.inputs)}", "int64", shape, draw)


def gather(e: Edge) -> None:
    rank = e.between(1, 3)
    axis, x = e.below(rank), e.x(rank)
    e.dims.append("k")
    shape = [e.one(("k", 1, 2)) for _ in range(e.below(3))]
    e.node("Gather", [x, _indices(e, x, axis, shape)], axis=axis - rank * e.below(2))


def scatter(e: Edge) -> None:
    """One index along each axis, so that no two writes meet."""
    rank = e.between(1, 2)
    axis, x = e.below(rank), e.x(rank)
    shape: list[Any] = [1] * rank
    at = _indices(e, x, axis, shape)
    new = e.given("new", "float32", shape, lambda sizes: numpy.full((1,) * rank, 99, "float32"))
    more = {"reduction": e.one(("add", "max", "min", "mul"))} if e.chance(0.5) else {}
    e.node("ScatterElements", [x, at, new], axis=axis - rank * e.below(2), **more)


def gather_elements(e: Edge) -> None:
    rank = e.between(1, 3)
    axis, x = e.below(rank), e.x(rank)
    at = _indices(e, x, axis, [1] * rank)
    e.node("GatherElements", [x, at], axis=axis - rank * e.below(2))


def resize(e: Edge) -> None:
    rank = e.between(1, 2)
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes: dict[str, Any] = {
        "mode": e.one(("nearest", "linear")), "coordinate_transformation_mode": e.one(modes),
        "nearest_mode": e.one(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    }  # fmt: skip
    x = e.x(rank)
    if e.chance(0.5):
        scales = [e.one((0.5, 0.25, 1.0, 1.5, 2.0, 3.0)) for _ in range(rank)]
        e.node("Resize", [x, "", e.numbers_in(scales, "float32")], **attributes)
    else:
        sizes = [e.between(1, 9) for _ in range(rank)]
        e.node("Resize", [x, "", "", e.numbers_in(sizes)], **attributes)


def one_hot(e: Edge) -> None:
    rank = e.between(0, 2)
    depth, x = e.between(1, 5), e.x(rank, "int64")
    inputs = [x, e.numbers_in(depth), e.numbers_in([2, 5], "float32")]
    e.node("OneHot", inputs, axis=e.between(-rank - 1, rank))


def trilu(e: Edge) -> None:
    inputs = [e.x(e.between(2, 3))]
    if e.chance(0.8):
        inputs.append(e.numbers_in(e.between(-9, 9)))
    e.node("Trilu", inputs, upper=e.below(2))


def cum_sum(e: Edge) -> None:
    rank = e.between(1, 3)
    axis = e.numbers_in(e.between(-rank, rank - 1))
    e.node("CumSum", [e.x(rank), axis], exclusive=e.below(2), reverse=e.below(2))


def top_k(e: Edge) -> None:
    rank = e.between(1, 3)
    axis, k = e.below(rank), e.one((0, 1, 2))
    x = e.x(rank, fixed={axis: e.between(2, 5)} if e.chance(0.7) else None)
    e.node("TopK", [x, e.numbers_in([k])], 2, axis=axis, largest=e.below(2))


def non_zero(e: Edge) -> None:
    e.node("NonZero", [e.x(e.between(1, 3), e.one(("float32", "bool", "int64")))])


def range_(e: Edge) -> None:
    dtype = e.one(("int64", "int32", "float32"))
    start, end, step = e.between(-5, 5), e.between(-5, 12), e.one((1, 2, 3, -1, -4))
    e.node("Range", [e.numbers_in(value, dtype) for value in (start, end, step)])


def reverse_sequence(e: Edge) -> None:
    time = e.below(2)
    x = e.x(e.between(2, 3))

    def draw(sizes: dict[str, int]) -> Any:
        shape = e.last[x].shape
        return e.numbers.integers(min(1, shape[time]), shape[time] + 1, shape[1 - time])

    axes = e.inputs[0].type.tensor_type.shape.dim[1 - time]
    lengths = e.given("n", "int64", [axes.dim_param or axes.dim_value], draw)
    e.node("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)


def compress(e: Edge) -> None:
    rank = e.between(1, 3)
    keep, axis = [e.chance(0.5) for _ in range(e.between(0, 3))], e.below(rank)
    x = e.x(rank, fixed={axis: len(keep) + e.below(2)})  # a longer condition is not valid
    e.node("Compress", [x, e.numbers_in(keep, "bool")], axis=axis - rank * e.below(2))


EQUATIONS = (
    "ij->ji", "ij->", "ij->i", "ii->i", "ij,jk->ik", "ij,ij->j", "i,j->ij", "...i->...",
)  # fmt: skip


def einsum(e: Edge) -> None:
    text = e.one(
        ("ij->ji", "ij->", "ij->i", "ii->i", "ij,jk->ik", "ij,ij->j", "i,j->ij", "...i->...")
    )
    given = text.split("->")[0].split(",")
    if text == "ii->i":
        e.dims.append("d0")
        e.given("x0", "float32", ["d0", "d0"], lambda s: e.drawn((s["d0"], s["d0"])))
        e.node("Einsum", ["x0"], equation=text)
        return
    names = sorted({letter for part in given for letter in part if letter.isalpha()})
    e.dims += names
    inputs = []
    for number, part in enumerate(given):
        axes = [letter for letter in part if letter.isalpha()]
        inputs.append(e.given(
            f"x{number}", "float32", list(axes),
            lambda sizes, axes=axes: e.drawn(tuple(sizes[axis] for axis in axes)),
        ))  # fmt: skip
    e.node("Einsum", inputs, equation=text)


def blocks(e: Edge) -> None:
    block = e.one((1, 2))
    if e.chance(0.5):
        x = e.x(4, fixed={1: 4 * e.between(0, 2)})
        e.node("DepthToSpace", [x], blocksize=block, mode=e.one(("DCR", "CRD")))
    else:
        x = e.x(4, fixed={2: block * e.between(0, 3), 3: block * e.between(0, 2)})
        e.node("SpaceToDepth", [x], blocksize=block)


def columns_to_image(e: Edge) -> None:
    image = [e.between(2, 5) for _ in range(2)]
    block = [e.between(1, 2) for _ in range(2)]
    count = (image[0] - block[0] + 1) * (image[1] - block[1] + 1)
    x = e.x(3, fixed={1: block[0] * block[1] * e.between(1, 2), 2: count})
    e.node("Col2Im", [x, e.numbers_in(image, share=1), e.numbers_in(block, share=1)])


def center_crop_pad(e: Edge) -> None:
    rank = e.between(1, 3)
    axes = [int(axis) for axis in e.numbers.permutation(rank)[: e.between(1, rank)]]
    wanted = e.numbers_in([e.between(0, 6) for _ in axes])
    e.node("CenterCropPad", [e.x(rank), wanted], axes=axes)


def grid_sample(e: Edge) -> None:
    x = e.x(4)
    first = e.inputs[0].type.tensor_type.shape.dim[0]
    batch = first.dim_param or first.dim_value

    def draw(sizes: dict[str, int]) -> Any:
        shape = (sizes.get(batch, batch), 2, 3, 2)
        return (e.numbers.integers(-6, 7, shape) / 4).astype("float32")

    e.opset = 20
    e.node(
        "GridSample", [x, e.given("grid", "float32", [batch, 2, 3, 2], draw)],
        mode=e.one(("linear", "nearest")), align_corners=e.below(2),
        padding_mode=e.one(("zeros", "border", "reflection")),
    )  # fmt: skip


OPERATORS = (
    squeeze, unsqueeze, reshape, expand, slice_, slice_, pad, pad, tile, concat, split, gather,
    scatter, gather_elements, resize, one_hot, trilu, cum_sum, top_k, non_zero, range_,
    reverse_sequence, compress, einsum, blocks, columns_to_image, center_crop_pad, grid_sample,
)  # fmt: skip


class Drawn(Edge):
    """An edge that remembers the inputs of the call that is being drawn."""

    last: Arrays

    def drawn(self, shape: tuple[int, ...]) -> numpy.ndarray:
        return self.numbers.integers(-9, 10, shape).astype("float32")

    def feeds(self, sizes: dict[str, int]) -> Arrays:
        self.last = {}
        for name, draw in self.draws.items():
            self.last[name] = numpy.asarray(draw(sizes))
        return self.last

    def points(self) -> Iterator[dict[str, int]]:
        for _ in range(CALLS):
            yield {name: self.one(SIZES) for name in self.dims}


def made(seed: int) -> Drawn:
    e = Drawn(numpy.random.default_rng(seed))
    e.one(OPERATORS)(e)
    return e


# ---- judging -------------------------------------------------------------------------------------


def _reference(proto: onnx.ModelProto) -> Callable[[Arrays], list[Any] | None]:
    evaluator = ReferenceEvaluator(proto)

    def run(feeds: Arrays) -> list[Any] | None:
        try:
            with numpy.errstate(all="ignore"):
                return [numpy.asarray(array) for array in evaluator.run(None, feeds)]
        except Exception:  # whatever it raises
            return None

    return run


def _session(proto: onnx.ModelProto) -> Callable[[Arrays], list[Any] | None]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:
        return lambda feeds: None

    def run(feeds: Arrays) -> list[Any] | None:
        if not all(array.size for array in feeds.values()):  # may end its process
            return None
        try:
            return list(session.run(None, feeds))
        except Exception:
            return None

    return run


def same(left: list[Any] | None, right: list[Any] | None) -> bool:
    """Whether results have the same shapes, types and numbers, but for rounding of float32."""
    if left is None or right is None:
        return left is right
    return all(
        one.shape == other.shape and one.dtype == other.dtype
        and numpy.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
        for one, other in zip(left, right)
    )  # fmt: skip


def _is_read(proto: onnx.ModelProto, feeds: Arrays) -> bool:
    """Whether the reference counts alone: where onnxruntime is not asked."""
    known = all(node.op_type not in WRONG_IN_REFERENCE for node in proto.graph.node)
    return known and any(not array.size for array in feeds.values())


def judged(seed: int, unsure: bool = False) -> tuple[str, str]:
    """What is wrong with the model of a seed, and its text; twice '' where nothing is.

    With `unsure`, also what one engine alone says otherwise.
    """
    e = made(seed)
    proto = e.model()
    text = onnx.printer.to_text(proto)
    engines = [_reference(proto), _session(proto)]
    model, problem = None, ""
    try:
        model = ad.compile(proto)
    except UserError as error:
        problem = str(error)
    for sizes in e.points():
        feeds = e.feeds(sizes)
        peers = [run(feeds) for run in engines]
        taken = [results for results in peers if results is not None]
        came = None
        if model is not None:
            try:
                results = model(**feeds)
                came = [results[name] for name in e.results]
            except UserError as error:
                problem = str(error)
        if any(same(came, results) for results in (taken if came is not None else [])):
            continue
        agreed = len(taken) == 2 and same(*taken)
        both = len(taken) == 2 and came is not None
        empty = peers[0] is not None and came is not None and _is_read(proto, feeds)
        if agreed or both or empty or (unsure and taken):
            shown = [None if each is None else [(a.shape, a.tolist()) for a in each]
                     for each in (came, *peers)]  # fmt: skip
            given = {name: array.tolist() for name, array in feeds.items()}
            return (
                f"{'wrong' if came is not None else 'refused: ' + problem} at {sizes}",
                f"{text}\n{given}\ncame {shown[0]}\nreference {shown[1]}\nonnxruntime {shown[2]}",
            )
    return "", ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the models of these seeds, in order."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS * 3)
        yield Outcome(seed, *judged(seed))

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", onnx.printer.to_text(made(seed).model()))

    return run_each(seeds, small, one, crashed)

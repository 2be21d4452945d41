"""What nodes random ONNX models have: each function adds one, or a few that belong together."""

from __future__ import annotations

from collections.abc import Callable

import numpy
from onnx import TensorProto

from anydim.sizes import as_size, ceil_div
from tests.fuzz import onnx_quantised
from tests.fuzz.onnx_models import Known, Models, broadcast, elements, fixed

SMOOTH = (
    "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Atan", "Softplus", "Softsign",
    "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Asinh",
    "Identity", "Exp",
)  # fmt: skip
STEPS = ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul", "Sum", "Mean")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


def unary(m: Models) -> None:
    x = m.pick()
    m.node(m.one(SMOOTH), [x.name], "f", x.shape)


def step(m: Models) -> None:
    x = m.pick(exact=True)
    m.node(m.one(STEPS), [x.name], "f", x.shape, True)


def guarded(m: Models) -> None:
    """Functions of what is positive for sure."""
    x = m.pick()
    size = m.node("Abs", [x.name], "f", x.shape)
    above = m.node("Add", [size.name, m.constant(numpy.float32(0.5))], "f", x.shape)
    kind = m.one(("Sqrt", "Log", "Reciprocal", "Pow", "Div"))
    more = {"Pow": [m.constant(numpy.float32(1.5))], "Div": [above.name]}.get(kind, [])
    first = x.name if kind == "Div" else above.name
    m.node(kind, [first, *more], "f", x.shape)


def binary(m: Models) -> None:
    x = m.pick()
    m.node(m.one(BINARY), *_with_mate(m, x))


def _with_mate(m: Models, x: Known) -> tuple[list[str], str, tuple]:
    """(inputs, type, shape) of x and a value or constant that it meets."""
    mates = [v for v in m.values if v.kind == "f" and broadcast(x, v) is not None]
    if mates and m.chance(0.5):
        mate = m.one(mates)
        shape = broadcast(x, mate)
        assert shape is not None
        return [x.name, mate.name], "f", shape
    sizes = [s.constant if fixed(s) and m.chance(0.8) else 1 for s in x.shape]
    return [x.name, m.weights(*sizes[m.random.randint(0, x.rank) :])], "f", x.shape


def choose(m: Models) -> None:
    """A comparison, perhaps inverted or joined, and what it picks."""
    x = m.pick(exact=True)
    level = m.constant(numpy.float32(m.one((0.0, 0.5, -1.0))))
    flag = m.node(m.one(COMPARISONS), [x.name, level], "b", x.shape, True)
    if m.chance(0.3):
        flag = m.node("Not", [flag.name], "b", x.shape, True)
    if m.chance(0.3):
        flag = m.node(m.one(("And", "Or", "Xor")), [flag.name] * 2, "b", x.shape, True)
    other = m.pick(wanted=lambda v: broadcast(flag, v) is not None)
    shape = broadcast(flag, other)
    assert shape is not None
    m.node("Where", [flag.name, other.name, level], "f", shape, other.exact)


def cast(m: Models) -> None:
    x = m.pick(exact=True)
    whole = m.node("Cast", [x.name], "l", x.shape, True, to=TensorProto.INT64)
    if m.chance(0.5):
        m.node("Cast", [whole.name], "f", x.shape, True, to=TensorProto.FLOAT)


def reduce(m: Models) -> None:
    x = m.pick(low=1)
    axes = sorted(m.random.sample(range(x.rank), m.random.randint(1, x.rank)))
    keep = m.chance(0.5)
    shape = [as_size(1) if a in axes else s for a, s in enumerate(x.shape) if keep or a not in axes]
    given = m.integers(*(m.signed(axis, x.rank) for axis in axes))
    m.node(m.one(REDUCTIONS), [x.name, given], "f", shape, keepdims=int(keep))


def softmax(m: Models) -> None:
    x = m.pick(low=1)
    axis = m.signed(m.axis(x), x.rank)
    m.node(m.one(("Softmax", "LogSoftmax")), [x.name], "f", x.shape, axis=axis)


def layer_norm(m: Models) -> None:
    x = m.pick(low=1, wanted=lambda v: fixed(v.shape[-1]) and v.shape[-1].constant != 1)
    size = x.shape[-1].constant or 1
    inputs = [x.name, m.weights(size), m.weights(size)][: m.one((2, 3))]
    m.node("LayerNormalization", inputs, "f", x.shape, axis=-1, epsilon=1e-3)


def batch_norm(m: Models) -> None:
    x = m.pick(low=2, wanted=lambda v: fixed(v.shape[1]))
    size = x.shape[1].constant or 1
    spread = m.constant(m.numbers.uniform(0.5, 2, size).astype(numpy.float32))
    inputs = [x.name, *(m.weights(size) for _ in range(3)), spread]
    m.node("BatchNormalization", inputs, "f", x.shape)


def transpose(m: Models) -> None:
    x = m.pick(low=1)
    perm = m.random.sample(range(x.rank), x.rank)
    m.node("Transpose", [x.name], "f", [x.shape[p] for p in perm], x.exact, perm=perm)


def reshape(m: Models) -> None:
    """Joins two axes, cuts a fixed one, or flattens."""
    x = m.pick(low=2, high=4)
    at = m.random.randrange(x.rank - 1)
    known = [s.constant if s.constant is not None else 0 for s in x.shape]
    if m.chance(0.3):
        left = elements(Known("", "f", x.shape[:at], True))
        right = elements(Known("", "f", x.shape[at:], True))
        m.node("Flatten", [x.name], "f", (left, right), x.exact, axis=at)
        return
    if sum(k == 0 for k in known) > 0 and any(k == 0 for k in known[at + 2 :]):
        raise LookupError  # 0 takes the size at the same place
    shape = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
    if not all(fixed(s) for s in (*x.shape[:at], *x.shape[at + 2 :])):
        raise LookupError  # a 0 beside -1 cannot be told apart where a size is 0
    m.node("Reshape", [x.name, m.integers(*known[:at], -1, *known[at + 2 :])], "f", shape, x.exact)


def squeeze(m: Models) -> None:
    x = m.pick(high=4)
    at = m.random.randint(0, x.rank)
    shape = (*x.shape[:at], as_size(1), *x.shape[at:])
    wide = m.node("Unsqueeze", [x.name, m.integers(at)], "f", shape, x.exact)
    if m.chance(0.3):
        y = m.node("Relu", [wide.name], "f", shape, x.exact)
        m.node("Squeeze", [y.name, m.integers(at)], "f", x.shape, x.exact)


def concat(m: Models) -> None:
    x = m.pick(low=1)
    axis = m.axis(x)
    rest = lambda v: (*v.shape[:axis], *v.shape[axis + 1 :])  # noqa: E731
    mates = [v for v in m.values if v.kind == "f" and v.rank == x.rank and rest(v) == rest(x)]
    y = m.one(mates)
    shape = (*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :])
    m.node("Concat", [x.name, y.name], "f", shape, x.exact and y.exact, axis=m.signed(axis, x.rank))


def split(m: Models) -> None:
    x = m.pick(low=1, wanted=lambda v: any(fixed(s) and s.constant != 1 for s in v.shape))
    axis = m.one([a for a, s in enumerate(x.shape) if fixed(s) and s.constant != 1])
    size = x.shape[axis].constant or 1
    first = m.random.randint(1, size - 1)
    shapes = [(*x.shape[:axis], part, *x.shape[axis + 1 :]) for part in (first, size - first)]
    cuts = m.integers(first, size - first)
    m.nodes_of("Split", [x.name, cuts], [("f", s) for s in shapes], x.exact, axis=axis)


def slice_(m: Models) -> None:
    """Part of a fixed axis, or an axis the other way round."""
    x = m.pick(low=1)
    axis = m.axis(x)
    size = x.shape[axis]
    if m.chance(0.4) or not fixed(size):
        numbers = (-1, -(2**62), -1)
    else:
        numbers = (m.random.randint(0, size.constant - 1), 2**62, m.one((1, 2)))
        size = as_size(-(-(size.constant - numbers[0]) // numbers[2]))
    start, end, by = numbers
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    given = [m.integers(number) for number in (start, end, axis, by)]
    m.node("Slice", [x.name, *given], "f", shape, x.exact)


def pad(m: Models) -> None:
    x = m.pick(low=1, high=4)
    pads = [m.one((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    shape = [s + pads[a] + pads[a + x.rank] for a, s in enumerate(x.shape)]
    value = m.constant(numpy.float32(m.one((0.0, 1.5))))
    m.node("Pad", [x.name, m.integers(*pads), value], "f", shape, x.exact)


def tile(m: Models) -> None:
    x = m.pick(low=1, high=3)
    repeats = [m.one((1, 1, 2, 3)) for _ in x.shape]
    shape = [s * r for s, r in zip(x.shape, repeats)]
    m.node("Tile", [x.name, m.integers(*repeats)], "f", shape, x.exact)


def expand(m: Models) -> None:
    """One axis as long as another value says at run time."""
    x = m.pick(low=1, high=3)
    like = m.pick(low=1)
    shape = m.node("Shape", [like.name], "l", (like.rank,), True)
    at = m.axis(like)
    length = m.node("Gather", [shape.name, m.integers(at)], "l", (1,), True, axis=0)
    ones = m.integers(*[1] * x.rank)
    wanted = m.node("Concat", [length.name, ones], "l", (x.rank + 1,), True, axis=0)
    m.node("Expand", [x.name, wanted.name], "f", (like.shape[at], *x.shape), x.exact)


def trilu(m: Models) -> None:
    x = m.pick(low=2)
    m.node("Trilu", [x.name], "f", x.shape, x.exact, upper=m.one((0, 1)))


def gather(m: Models) -> None:
    x = m.pick(low=1, high=4, wanted=lambda v: any(fixed(s) for s in v.shape))
    axis = m.one([a for a, s in enumerate(x.shape) if fixed(s)])
    size = x.shape[axis].constant or 1
    places = m.numbers.integers(-size, size, m.one(((), (2,), (2, 3))))
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
    m.node("Gather", [x.name, m.constant(places)], "f", shape, x.exact, axis=axis)


def extreme(m: Models) -> None:
    """Places along an axis that is never empty."""
    x = m.pick(low=1, exact=True, wanted=lambda v: any(fixed(s) for s in v.shape))
    axis = m.one([a for a, s in enumerate(x.shape) if fixed(s)])
    if m.chance(0.5):
        kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        m.node(m.one(("ArgMax", "ArgMin")), [x.name], "l", kept, True, axis=axis)
        return
    k = m.random.randint(1, x.shape[axis].constant or 1)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    made = [("f", shape), ("l", shape)]
    m.nodes_of("TopK", [x.name, m.integers(k)], made, True, axis=axis, largest=m.one((0, 1)))


def running(m: Models) -> None:
    x = m.pick(low=1)
    axis = m.constant(numpy.int64(m.axis(x)))
    reverse, exclusive = m.one((0, 1)), m.one((0, 1))
    m.node("CumSum", [x.name, axis], "f", x.shape, reverse=reverse, exclusive=exclusive)


def matmul(m: Models) -> None:
    x = m.pick(low=2, high=4)
    if fixed(x.shape[-1]) and m.chance(0.7):
        columns = m.one((1, 3, 8, 17, 32))
        shape = (*x.shape[:-1], as_size(columns))
        y = m.node("MatMul", [x.name, m.weights(x.shape[-1].constant or 1, columns)], "f", shape)
        if m.chance(0.5):
            m.node("Add", [y.name, m.weights(columns)], "f", shape)
        return
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    shape = [x.shape[p] for p in perm]
    other = m.node("Transpose", [x.name], "f", shape, x.exact, perm=perm)
    m.node("MatMul", [x.name, other.name], "f", (*x.shape[:-1], x.shape[-2]))


def gemm(m: Models) -> None:
    x = m.pick(low=2, high=2, wanted=lambda v: fixed(v.shape[1]))
    rows, columns, flip = x.shape[1].constant or 1, m.one((1, 5, 16)), m.chance(0.5)
    w = m.weights(*((columns, rows) if flip else (rows, columns)))
    inputs = [x.name, w, m.weights(columns)][: m.one((2, 3))]
    shape = (x.shape[0], as_size(columns))
    m.node("Gemm", inputs, "f", shape, transB=int(flip), alpha=m.one((1.0, 0.5)))


def conv(m: Models) -> None:
    """A convolution, perhaps with its normalisation and ReLU."""
    x = m.pick(low=3, high=4, wanted=lambda v: fixed(v.shape[1]))
    channels, out, spatial = x.shape[1].constant or 1, m.one((1, 4, 8, 17)), x.rank - 2
    kernel, by = m.one((1, 3)), m.one((1, 1, 2))
    behind = m.one((0, 0, 1)) if kernel == 1 else 1
    pads = [kernel // 2] * spatial + [behind] * spatial
    groups = channels if channels > 1 and m.chance(0.2) else 1
    out = channels * m.one((1, 2)) if groups > 1 else out
    inputs = [x.name, m.weights(out, channels // groups, *[kernel] * spatial, scale=0.3)]
    inputs += [m.weights(out)] if m.chance(0.5) else []
    sizes = [ceil_div(s + kernel // 2 + behind - kernel + 1, by) for s in x.shape[2:]]
    shape = (x.shape[0], as_size(out), *sizes)
    m.node("Conv", inputs, "f", shape, pads=pads, strides=[by] * spatial, group=groups)
    if m.chance(0.4):
        batch_norm(m)
        unary(m)


def pool(m: Models) -> None:
    x = m.pick(low=3, high=4)
    spatial = x.rank - 2
    if m.chance(0.3):
        kind = m.one(("GlobalAveragePool", "GlobalMaxPool"))
        m.node(kind, [x.name], "f", (*x.shape[:2], *[1] * spatial))
        return
    sizes = [ceil_div(s, 2) for s in x.shape[2:]]
    m.node(
        m.one(("MaxPool", "AveragePool")), [x.name], "f", (*x.shape[:2], *sizes),
        kernel_shape=[3] * spatial, pads=[1] * 2 * spatial, strides=[2] * spatial,
    )  # fmt: skip


def resize(m: Models) -> None:
    x = m.pick(low=4, high=4)
    scales = m.constant(numpy.array([1, 1, 2, 2], numpy.float32))
    shape = (*x.shape[:2], x.shape[2] * 2, x.shape[3] * 2)
    mode = m.one(("nearest", "linear"))
    m.node("Resize", [x.name, "", scales], "f", shape, mode=mode)


def recurrent(m: Models) -> None:
    """A layer over [time, batch, input], its results [time, batch, hidden]."""
    x = m.pick(low=3, high=3, wanted=lambda v: fixed(v.shape[2]))
    kind, gates = m.one((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    size, hidden = x.shape[2].constant or 1, m.one((1, 3, 8))
    both = m.chance(0.3)
    ways, direction = (2, "bidirectional") if both else (1, m.one(("forward", "reverse")))
    inputs = [
        x.name,
        m.weights(ways, gates * hidden, size, scale=0.3),
        m.weights(ways, gates * hidden, hidden, scale=0.3),
    ]
    inputs += [m.weights(ways, 2 * gates * hidden)] if m.chance(0.6) else []
    states = [("f", (ways, x.shape[1], hidden))] * (2 if kind == "LSTM" else 1)
    made = [("f", (x.shape[0], ways, x.shape[1], hidden)), *states]
    m.nodes_of(kind, inputs, made, hidden_size=hidden, direction=direction)


def one_hot(m: Models) -> None:
    x = m.pick("l", low=1, high=3)
    values = m.constant(numpy.array([-0.5, 1.5], numpy.float32))
    depth = m.one((1, 4, 7))
    m.node("OneHot", [x.name, m.integers(depth), values], "f", (*x.shape, depth), True)


def integers(m: Models) -> None:
    x = m.pick("l")
    other = m.constant(numpy.int64(m.one((1, 3, -2))))
    m.node(m.one(("Add", "Mul", "Sub", "Div", "Mod", "Max")), [x.name, other], "l", x.shape, True)


def positions(m: Models) -> None:
    """Numbers along an axis, from its size."""
    x = m.pick(low=1)
    axis = m.axis(x)
    shape = m.node("Shape", [x.name], "l", (x.rank,), True)
    place = m.constant(numpy.int64(axis))
    size = m.node("Gather", [shape.name, place], "l", (), True, axis=0)
    ends = [m.constant(numpy.int64(0)), size.name, m.constant(numpy.int64(1))]
    m.node("Range", ends, "l", (x.shape[axis],), True)


def scatter(m: Models) -> None:
    """Numbers written at places along a fixed axis, each place once."""
    x = m.pick(low=1, high=1, wanted=lambda v: fixed(v.shape[0]))
    size = x.shape[0].constant or 1
    places = m.numbers.permutation(size)[: m.random.randint(1, size)].astype(numpy.int64)
    inputs = [x.name, m.constant(places), m.weights(len(places))]
    m.node("ScatterElements", inputs, "f", x.shape, reduction=m.one(("none", "add", "max")))


def grid_sample(m: Models) -> None:
    """x at places that an input says, outside as well."""
    x = m.pick(low=4, high=4)
    grid = m.input("f", (x.shape[0], m.one(m.dims.values()), as_size(3), as_size(2)))
    m.node(
        "GridSample", [x.name, grid.name], "f", (*x.shape[:2], *grid.shape[1:3]),
        mode=m.one(("linear", "nearest", "cubic")), align_corners=m.one((0, 1)),
        padding_mode="zeros",
    )  # fmt: skip


def einsum(m: Models) -> None:
    x = m.pick(low=3, high=3)
    shape = (x.shape[0], x.shape[1], x.shape[1])
    m.node("Einsum", [x.name, x.name], "f", shape, equation="bij,bkj->bik")


NODES: tuple[tuple[float, Callable[[Models], None]], ...] = (
    (4, unary), (1, step), (1.5, guarded), (4, binary), (1.5, choose), (0.7, cast), (3, reduce),
    (1.5, softmax), (1.2, layer_norm), (0.7, batch_norm), (2, transpose), (1.5, reshape),
    (1, squeeze), (1.5, concat), (0.8, split), (1.2, slice_), (1, pad), (0.5, tile),
    (0.7, expand), (0.4, trilu), (1, gather), (1, extreme), (0.7, running), (2.5, matmul),
    (0.8, gemm), (2, conv), (1, pool), (0.5, resize), (0.8, recurrent), (0.4, grid_sample),
    (0.5, one_hot), (0.6, integers), (0.5, positions), (0.3, scatter), (0.5, einsum),
    *onnx_quantised.NODES,
)  # fmt: skip


def random_model(seed: int) -> Models:
    """A model of 3 to 12 nodes, a few more where some belong together."""
    m = Models(seed)
    m.input("f", m.shape(1, 4))
    count = m.random.randint(3, 12)
    while len(m.nodes) < count:
        _, make = m.random.choices(NODES, [weight for weight, _ in NODES])[0]
        try:
            make(m)
        except LookupError:
            continue
    return m

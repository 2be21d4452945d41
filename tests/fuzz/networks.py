"""Random networks of images: convolutions of any form with what stands between them.

Layers follow one another over images [n, channels, height, width] whose channels are fixed and
whose other dimensions are free or fixed; a layer is a convolution, a pool, a residual, a
concatenation of branches, gates of channels, attention over places, a transposition, ... A seed
says the layout of images as well. Judged as other ONNX models are (`onnx_peers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy

from anydim.base import settings
from anydim.sizes import Size, as_size, product
from tests.fuzz import onnx_peers
from tests.fuzz.onnx_models import Known, Models
from tests.fuzz.runner import Outcome

LAYOUTS = ("auto", "channels_first", "channels_last", "channels_last")
CHANNELS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 33, 48)
SIDES = (1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 19, 31, 33)
BATCHES = (0, 1, 1, 2, 3)
ACTIVATIONS = ("Relu", "Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Gelu", "Elu", "Tanh")
NARROW = (-128, 127)


@dataclass(frozen=True)
class _Layer:
    """How often a layer is taken, and what adds it."""

    weight: float
    make: Callable[[Models, Known], Known]


def images(x: Known, channels: int) -> tuple[Size, ...]:
    """The shape of x with other channels; free sides stand for those that nobody computes here."""
    return (x.shape[0], as_size(channels), *x.shape[2:])


def channels_of(x: Known) -> int:
    return x.shape[1].constant or 1


# ---- convolutions --------------------------------------------------------------------------------


def convolved(
    m: Models, x: Known, out: int, kernel: tuple[int, int], groups: int = 1, same: bool = True
) -> Known:
    """A convolution; with `same`, height and width stay."""
    dilation = m.one((1, 1, 1, 2))
    reach = [dilation * (k - 1) for k in kernel]
    before = [r // 2 if same else m.random.randint(0, max(r // 2, 0)) for r in reach]
    after = [r - b if same else m.random.randint(0, r) for r, b in zip(reach, before)]
    by = [1, 1] if same else [m.one((1, 2, 2, 3)), m.one((1, 2, 2, 3))]
    held = m.weights(out, channels_of(x) // groups, *kernel, scale=_scale(x, kernel, groups))
    inputs = [x.name, held] + ([m.weights(out)] if m.chance(0.6) else [])
    return m.node(
        "Conv", inputs, "f", images(x, out), pads=[*before, *after], strides=by,
        dilations=[dilation] * 2, group=groups,
    )  # fmt: skip


def _scale(x: Known, kernel: tuple[int, int], groups: int) -> float:
    return float((kernel[0] * kernel[1] * channels_of(x) / groups) ** -0.5)


def kernel_of(m: Models) -> tuple[int, int]:
    return m.one(((1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (2, 2), (1, 3), (3, 1), (7, 7)))


def convolution(m: Models, x: Known, same: bool = True) -> Known:
    """One of all channels, of groups or of each channel, with what follows it."""
    channels = channels_of(x)
    groups = m.one((1, 1, 1, channels, *[g for g in (2, 3, 4) if channels % g == 0]))
    out = m.one(CHANNELS) if groups == 1 else channels * m.one((1, 1, 2))
    y = convolved(m, x, out, kernel_of(m), groups, same)
    if m.chance(0.3):
        scale, shift, mean = (m.weights(out) for _ in range(3))
        wide = m.constant((numpy.abs(m.numbers.standard_normal(out)) + 0.5).astype(numpy.float32))
        y = m.node("BatchNormalization", [y.name, scale, shift, mean, wide], "f", y.shape)
    return activated(m, y) if m.chance(0.7) else y


def activated(m: Models, x: Known) -> Known:
    if m.chance(0.2):
        gate = m.node("Sigmoid", [x.name], "f", x.shape)
        return m.node("Mul", [x.name, gate.name], "f", x.shape)
    if m.chance(0.1):
        slopes = m.weights(channels_of(x), 1, 1)
        return m.node("PRelu", [x.name, slopes], "f", x.shape)
    if m.chance(0.15):
        ends = [m.constant(numpy.float32(end)) for end in (0.0, 6.0)]
        return m.node("Clip", [x.name, *ends], "f", x.shape)
    return m.node(m.one(ACTIVATIONS), [x.name], "f", x.shape)


def quantised(m: Models, x: Known) -> Known:
    """A convolution of bytes with scales."""
    channels, out, kernel = channels_of(x), m.one(CHANNELS), m.one((1, 3))
    scale, zero = m.constant(numpy.float32(0.05)), m.constant(numpy.uint8(m.one((0, 120, 128))))
    bytes_ = m.node("QuantizeLinear", [x.name, scale, zero], "u", x.shape)
    back = m.node("DequantizeLinear", [bytes_.name, scale, zero], "f", x.shape)
    held = m.constant(m.numbers.integers(*NARROW, (out, channels, kernel, kernel), numpy.int8))
    sizes = (m.numbers.random(out) * 0.01 + 0.001).astype(numpy.float32)
    zeros = m.constant(numpy.zeros(out, numpy.int8))
    weights = m.node(
        "DequantizeLinear", [held, m.constant(sizes), zeros], "f",
        [as_size(n) for n in (out, channels, kernel, kernel)], axis=0,
    )  # fmt: skip
    pads = [kernel // 2] * 4
    y = m.node("Conv", [back.name, weights.name], "f", images(x, out), pads=pads)
    return activated(m, y)


# ---- layers that leave height and width ----------------------------------------------------------


def residual(m: Models, x: Known) -> Known:
    y = convolution(m, x)
    y = convolved(m, y, channels_of(x), m.one(((1, 1), (3, 3))))
    total = m.node("Add", [y.name, x.name], "f", x.shape)
    return activated(m, total) if m.chance(0.5) else total


def branches(m: Models, x: Known) -> Known:
    parts = [m.one((convolution, convolution, same_pool, same))(m, x) for _ in range(m.one((2, 3)))]
    count = sum(channels_of(part) for part in parts)
    return m.node("Concat", [part.name for part in parts], "f", images(x, count), axis=1)


def same(m: Models, x: Known) -> Known:
    return x


def same_pool(m: Models, x: Known) -> Known:
    side = m.one((3, 5))
    return m.node(
        m.one(("MaxPool", "AveragePool")), [x.name], "f", x.shape,
        kernel_shape=[side] * 2, pads=[side // 2] * 4,
    )  # fmt: skip


def gates(m: Models, x: Known) -> Known:
    """A factor for each channel, from the mean of all places."""
    channels, few = channels_of(x), m.one((1, 4, 8))
    if m.chance(0.5):
        mean = m.node("GlobalAveragePool", [x.name], "f", (*x.shape[:2], 1, 1))
    else:
        axes = m.integers(2, 3)
        mean = m.node("ReduceMean", [x.name, axes], "f", (*x.shape[:2], 1, 1), keepdims=1)
    y = activated(m, convolved(m, mean, few, (1, 1)))
    y = convolved(m, y, channels, (1, 1))
    y = m.node(m.one(("Sigmoid", "HardSigmoid")), [y.name], "f", y.shape)
    return m.node("Mul", m.random.sample([x.name, y.name], 2), "f", x.shape)


def split(m: Models, x: Known) -> Known:
    """Some channels go another way than the rest."""
    channels = channels_of(x)
    if channels < 2:
        return x
    first = m.random.randint(1, channels - 1)
    made = [("f", images(x, first)), ("f", images(x, channels - first))]
    left, right = m.nodes_of("Split", [x.name, m.integers(first, channels - first)], made, axis=1)
    left = convolution(m, left)
    parts = m.random.sample([left, right], 2)
    count = channels_of(left) + channels_of(right)
    return m.node("Concat", [part.name for part in parts], "f", images(x, count), axis=1)


def shuffle(m: Models, x: Known) -> Known:
    channels = channels_of(x)
    groups = m.one([g for g in (1, 2, 3, 4) if channels % g == 0])
    wide = m.node("Shape", [x.name], "l", (4,), True)
    ends = [m.node("Slice", [wide.name, m.integers(a), m.integers(b)], "l", (b - a,), True)
            for a, b in ((0, 1), (2, 4))]  # fmt: skip
    parts = [m.integers(groups, channels // groups), m.integers(channels)]
    shapes = [
        m.node("Concat", [ends[0].name, part, ends[1].name], "l", (count,), True, axis=0)
        for part, count in zip(parts, (5, 4))
    ]
    five = (x.shape[0], groups, channels // groups, *x.shape[2:])
    y = m.node("Reshape", [x.name, shapes[0].name], "f", five)
    five = (five[0], five[2], five[1], *five[3:])
    y = m.node("Transpose", [y.name], "f", five, perm=[0, 2, 1, 3, 4])
    return m.node("Reshape", [y.name, shapes[1].name], "f", x.shape)


def last(m: Models, x: Known) -> Known:
    """Channels last for a while: layer normalisation and two products."""
    channels, hidden = channels_of(x), m.one((4, 16, 33))
    shape = (x.shape[0], *x.shape[2:], x.shape[1])
    y = m.node("Transpose", [x.name], "f", shape, perm=[0, 2, 3, 1])
    if m.chance(0.7):
        inputs = [y.name, m.weights(channels), m.weights(channels)]
        y = m.node("LayerNormalization", inputs, "f", shape, axis=-1)
    y = m.node("MatMul", [y.name, m.weights(channels, hidden)], "f", (*shape[:3], hidden))
    y = m.node("Gelu", [y.name], "f", y.shape)
    y = m.node("MatMul", [y.name, m.weights(hidden, channels)], "f", shape)
    y = m.node("Transpose", [y.name], "f", x.shape, perm=[0, 3, 1, 2])
    return m.node("Add", [y.name, x.name], "f", x.shape) if m.chance(0.7) else y


def attention(m: Models, x: Known) -> Known:
    """Places attend to each other."""
    channels = channels_of(x)
    shape = m.node("Shape", [x.name], "l", (4,), True)
    places = product(x.shape[2:])
    flat = m.node("Reshape", [x.name, m.integers(0, channels, -1)], "f",
                  (x.shape[0], channels, places))  # fmt: skip
    rows = m.node("Transpose", [flat.name], "f", (x.shape[0], places, channels), perm=[0, 2, 1])
    q, k, v = (
        m.node("MatMul", [rows.name, m.weights(channels, channels, scale=0.2)], "f", rows.shape)
        for _ in range(3)
    )
    turned = m.node("Transpose", [k.name], "f", flat.shape, perm=[0, 2, 1])
    scores = m.node("MatMul", [q.name, turned.name], "f", (x.shape[0], places, places))
    weights = m.node("Softmax", [scores.name], "f", scores.shape, axis=-1)
    y = m.node("MatMul", [weights.name, v.name], "f", rows.shape)
    y = m.node("Transpose", [y.name], "f", flat.shape, perm=[0, 2, 1])
    y = m.node("Reshape", [y.name, shape.name], "f", x.shape)
    return m.node("Add", [y.name, x.name], "f", x.shape)


def normalised(m: Models, x: Known) -> Known:
    held = [m.weights(channels_of(x)) for _ in range(2)]
    kind = m.one(("InstanceNormalization", "LRN", "Softmax", "LpNormalization"))
    if kind == "InstanceNormalization":
        return m.node(kind, [x.name, *held], "f", x.shape)
    more = {"LRN": {"size": 3}, "Softmax": {"axis": 1}, "LpNormalization": {"axis": 1}}[kind]
    return m.node(kind, [x.name], "f", x.shape, **more)


def halves(m: Models, x: Known) -> Known:
    """16-bit floats for a while."""
    y = m.node("Cast", [x.name], "h", x.shape, to=10)
    y = m.node("Relu", [y.name], "h", x.shape)
    return m.node("Cast", [y.name], "f", x.shape, to=1)


# ---- layers that change height and width ---------------------------------------------------------


def strided(m: Models, x: Known) -> Known:
    return convolution(m, x, same=False)


def pool(m: Models, x: Known) -> Known:
    kind, side = m.one(("MaxPool", "AveragePool")), m.one((2, 3))
    more = {"count_include_pad": m.one((0, 1))} if kind == "AveragePool" else {}
    return m.node(
        kind, [x.name], "f", images(x, channels_of(x)), kernel_shape=[side] * 2,
        strides=[m.one((1, 2)), 2], pads=[m.one((0, side // 2)) for _ in range(4)], **more,
    )  # fmt: skip


def resized(m: Models, x: Known) -> Known:
    scales = m.constant(numpy.float32([1, 1, m.one((1, 2)), 2]))
    how = m.one((("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")))
    return m.node(
        "Resize", [x.name, "", scales], "f", images(x, channels_of(x)), mode=how[0],
        coordinate_transformation_mode=how[1], nearest_mode="floor",
    )  # fmt: skip


def transposed(m: Models, x: Known) -> Known:
    """A transposed convolution."""
    side, out = m.one((2, 3, 4)), m.one((1, 4, 8, 17))
    held = m.weights(channels_of(x), out, side, side, scale=_scale(x, (side, side), 1))
    y = m.node("ConvTranspose", [x.name, held], "f", images(x, out), strides=[2, m.one((1, 2))])
    return activated(m, y)


def turned(m: Models, x: Known) -> Known:
    """Height for width."""
    shape = (*x.shape[:2], x.shape[3], x.shape[2])
    return m.node("Transpose", [x.name], "f", shape, perm=[0, 1, 3, 2])


def cut(m: Models, x: Known) -> Known:
    """A part of each image."""
    axis, by = m.one((2, 3)), m.one((1, 2, -1))
    start, end = (m.one((0, 1)), 2**60) if by > 0 else (-1, -(2**60))
    given = [m.integers(number) for number in (start, end, axis, by)]
    return m.node("Slice", [x.name, *given], "f", images(x, channels_of(x)))


def padded(m: Models, x: Known) -> Known:
    pads = [0, 0, *(m.one((0, 1, 2)) for _ in range(2)), 0, 0, *(m.one((0, 1)) for _ in range(2))]
    inputs, mode = [x.name, m.integers(*pads)], m.one(("constant", "edge"))
    return m.node("Pad", inputs, "f", images(x, channels_of(x)), mode=mode)


def deeper(m: Models, x: Known) -> Known:
    """Places of a square are channels, or channels places."""
    if channels_of(x) % 4 == 0:
        shape = images(x, channels_of(x) // 4)
        return m.node("DepthToSpace", [x.name], "f", shape, blocksize=2, mode=m.one(("DCR", "CRD")))
    pads = m.integers(0, 0, 0, 0, 0, 0, 1, 1)
    y = m.node("Pad", [x.name, pads], "f", x.shape)
    return pool(m, y)


KEEPING = (
    _Layer(6, convolution), _Layer(2, residual), _Layer(2, branches), _Layer(1.5, gates),
    _Layer(1, split), _Layer(0.7, shuffle), _Layer(1, last), _Layer(0.6, attention),
    _Layer(0.7, normalised), _Layer(0.7, quantised), _Layer(0.5, same_pool), _Layer(0.3, halves),
)  # fmt: skip
CHANGING = (
    _Layer(2, strided), _Layer(1.5, pool), _Layer(1, resized), _Layer(0.7, transposed),
    _Layer(0.5, turned), _Layer(0.6, cut), _Layer(0.5, padded), _Layer(0.5, deeper),
)  # fmt: skip


# ---- the whole -----------------------------------------------------------------------------------


def rows(m: Models, x: Known) -> None:
    """Places as rows of channels."""
    places = product(x.shape[2:])
    shape = (x.shape[0], x.shape[1], places)
    y = m.node("Reshape", [x.name, m.integers(0, channels_of(x), -1)], "f", shape)
    turned_ = (shape[0], shape[2], shape[1])
    m.node(m.one(("Transpose", "Softmax")), [y.name], "f", turned_)


def classes(m: Models, x: Known) -> None:
    y = m.node(m.one(("GlobalAveragePool", "GlobalMaxPool")), [x.name], "f", (*x.shape[:2], 1, 1))
    y = m.node("Flatten", [y.name], "f", x.shape[:2])
    m.node("Gemm", [y.name, m.weights(channels_of(x), 10)], "f", (x.shape[0], 10))


def nothing(m: Models, x: Known) -> None:
    return


def random_network(seed: int) -> Models:
    """A network of 2 to 8 layers, with one to three results."""
    m = Models(seed)
    free = [m.dims["n"] if m.chance(0.8) else as_size(m.one((1, 2)))]
    free += [m.dims[d] if m.chance(0.8) else as_size(m.one((7, 16, 20))) for d in ("m", "k")]
    x = m.input("f", (free[0], as_size(m.one(CHANNELS)), *free[1:]))
    layers = (*KEEPING, *CHANGING)
    weights = [layer.weight for layer in layers]
    for _ in range(m.random.randint(2, 8)):
        x = m.random.choices(layers, weights)[0].make(m, x)
        if m.chance(0.15):
            m.node("Identity", [x.name], "f", x.shape)
    m.one((rows, classes, nothing, nothing))(m, x)
    if not m.nodes:
        convolution(m, x)
    return m


def points(m: Models) -> Iterator[dict[str, int]]:
    """Sizes for a few calls; the first is plain, so that some layer works."""
    yield {"n": 2, "m": 13, "k": 18}
    for _ in range(4):
        yield {"n": m.one(BATCHES), "m": m.one(SIDES), "k": m.one(SIDES)}


def is_large(sizes: dict[str, int]) -> bool:
    """Whether windows fit into images: onnx's reference has no result for those that do not."""
    return min(sizes["m"], sizes["k"]) > 12


def judged(seed: int, small: bool) -> tuple[str, str]:
    m = random_network(seed)
    layout = m.one(LAYOUTS)
    with settings.override(layout=layout):
        found, text = onnx_peers.judged_model(m, points(m), small, is_large)
    return (f"{layout}: {found}", text) if found else ("", "")


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the networks of these seeds, in order."""
    return onnx_peers.run(seeds, small, judged, random_network)

"""Nodes on bytes: quantised values, products and convolutions between them, scales from data.

What is quantised is exact, by scales that are powers of two, so that no engine may round another
way; sums of products are few enough to be exact numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
from onnx import TensorProto

from anydim.sizes import as_size
from tests.fuzz.onnx_models import Known, Models, fixed

SCALES = (0.0625, 0.125, 0.03125)
BYTES = {"u": (numpy.uint8, (0, 128, 3)), "c": (numpy.int8, (0, 0, -5))}


def there_and_back(m: Models) -> None:
    """Numbers as bytes stand for them; products of the bytes where rows are fixed."""
    x = m.pick(low=1, exact=True)
    small, zero = _back(m, x)
    if x.rank >= 2 and fixed(x.shape[-1]) and m.chance(0.5):
        weights = m.constant(m.numbers.integers(-9, 9, (x.shape[-1].constant or 1, 5), numpy.int8))
        sums = (*x.shape[:-1], as_size(5))
        made = m.node("MatMulInteger", [small.name, weights, zero], "i", sums, True)
        m.node("Cast", [made.name], "f", sums, True, to=TensorProto.FLOAT)


def product(m: Models) -> None:
    """A product of matrices between numbers that bytes stand for, perhaps quantised again."""
    x = m.pick(low=2, high=4, exact=True, wanted=lambda v: fixed(v.shape[-1]))
    columns = m.one((1, 4, 8, 17))
    inner = x.shape[-1].constant or 1
    _back(m, x)
    bytes_ = m.values[-1]
    weights = _weights(m, (inner, columns), columns, 1)
    shape = (*x.shape[:-1], as_size(columns))
    y = m.node("MatMul", [bytes_.name, weights.name], "f", shape, True)
    if m.chance(0.5):
        _back(m, y)


def convolution(m: Models) -> None:
    """A convolution between numbers that bytes stand for, with ReLU perhaps, quantised again."""
    x = m.pick(low=3, high=4, exact=True, wanted=lambda v: fixed(v.shape[1]))
    channels, out, spatial = x.shape[1].constant or 1, m.one((1, 4, 8)), x.rank - 2
    groups = channels if m.chance(0.3) else 1
    out = channels if groups > 1 else out
    _back(m, x)
    bytes_ = m.values[-1]
    weights = _weights(m, (out, channels // groups, *[3] * spatial), out, 0)
    inputs = [bytes_.name, weights.name]
    if m.chance(0.5):
        inputs.append(m.constant(m.numbers.choice([0.0, 1.5, -2.0], out).astype(numpy.float32)))
    shape = (x.shape[0], as_size(out), *x.shape[2:])
    y = m.node("Conv", inputs, "f", shape, True, pads=[1] * 2 * spatial, group=groups)
    if m.chance(0.5):
        y = m.node("Relu", [y.name], "f", shape, True)
    if m.chance(0.6):
        _back(m, y)


def dynamic(m: Models) -> None:
    """A scale from the data itself, and a product of the bytes."""
    x = m.pick(low=2, high=4, exact=True)
    made = [("u", x.shape), ("f", ()), ("u", ())]
    small, scale, zero = m.nodes_of("DynamicQuantizeLinear", [x.name], made)
    if not fixed(x.shape[-1]) or m.chance(0.3):
        m.node("DequantizeLinear", [small.name, scale.name, zero.name], "f", x.shape)
        return
    shape = (x.shape[-1].constant or 1, 5)
    weights = m.constant(m.numbers.integers(-9, 9, shape, numpy.int8))
    sums = (*x.shape[:-1], as_size(5))
    whole = m.node("MatMulInteger", [small.name, weights, zero.name], "i", sums)
    wide = m.node("Cast", [whole.name], "f", sums, to=TensorProto.FLOAT)
    m.node("Mul", [wide.name, scale.name], "f", sums)


def _back(m: Models, x: Known) -> tuple[Known, str]:
    """The bytes of a value, and the name of their zero; the number they stand for comes last."""
    kind = m.one(tuple(BYTES))
    dtype, zeros = BYTES[kind]
    scale, zero = m.constant(numpy.float32(m.one(SCALES))), m.constant(dtype(m.one(zeros)))
    small = m.node("QuantizeLinear", [x.name, scale, zero], kind, x.shape, True)
    m.node("DequantizeLinear", [small.name, scale, zero], "f", x.shape, True)
    return small, zero


def _weights(m: Models, shape: tuple[int, ...], count: int, axis: int) -> Known:
    """Numbers that small constants stand for, perhaps with a scale for each of `count`."""
    bytes_ = m.constant(m.numbers.integers(-9, 10, shape, numpy.int8))
    each = count if m.chance(0.5) else None
    scale = m.constant(m.numbers.choice(SCALES, each).astype(numpy.float32))
    zero = m.constant(numpy.zeros(() if each is None else each, numpy.int8))
    sizes = tuple(map(as_size, shape))
    return m.node("DequantizeLinear", [bytes_, scale, zero], "f", sizes, True, axis=axis)


NODES: tuple[tuple[float, Callable[[Models], None]], ...] = (
    (0.6, there_and_back), (0.6, product), (0.6, convolution), (0.4, dynamic),
)  # fmt: skip

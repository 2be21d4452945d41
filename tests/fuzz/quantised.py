"""Products and convolutions of quantised values.

Scales are powers of two and what is quantised is exact, so that no rounding may differ: sums of
products of few bits are numbers that a float32 holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

import anydim as ad
from anydim.base.dtypes import DType
from anydim.base.errors import GraphError
from anydim.compiler.frontends.builder import Value
from anydim.sizes import as_size
from tests.fuzz.maker import Maker
from tests.fuzz.windows import window

SCALES = (0.0625, 0.125, 0.03125)


def there_and_back(m: Maker) -> Value | tuple[Value, ...]:
    """Bytes of an exact value, and the numbers they stand for."""
    if m.specials:
        raise GraphError("no byte stands for NaN")
    x = _exact(m, 1, 4)
    to = m.one((ad.uint8, ad.int8))
    axis = m.random.randrange(len(x.shape))
    count = x.shape[axis].constant
    each = count if count is not None and m.chance(0.3) else None
    scale, zero = _scale(m, each), _zero(m, to, each)
    bytes_ = m.keep_exact(m.builder.quantize(x, scale, zero, to=to, axis=axis), x)
    back = m.keep_exact(m.builder.dequantize(bytes_, scale, zero, axis=axis), x)
    return (bytes_, back) if m.chance(0.4) else back


def product(m: Maker) -> Value:
    """A product of matrices between numbers that bytes stand for, perhaps quantised again."""
    x = _bytes_of(m, _exact(m, 2, 4))
    inner, columns = x.shape[-1].constant, m.one((1, 3, 8, 17, 32))
    each = columns if m.chance(0.4) else None
    if inner is None:
        w = m.input((x.shape[-1], as_size(columns)), ad.int8)
    else:
        w = _weights(m, (inner, columns))
    zero = _zero(m, ad.int8, each)
    y = m.builder.matmul(x, m.builder.dequantize(w, _scale(m, each), zero, axis=1))
    m.exact.add(y.name)
    return _again(m, y)


def convolution(m: Maker) -> Value:
    """A convolution between numbers that bytes stand for, perhaps quantised again."""
    rank = m.one((1, 2, 2))
    x = m.pick(
        lambda v: v.dtype == ad.float32 and v.name in m.exact and len(v.shape) == rank + 2
        and bool(v.shape[1].constant)
    )  # fmt: skip
    if x is None:
        channels = as_size(m.one((1, 3, 4, 8)))
        x = m.input((m.size(), channels, *(m.size() for _ in range(rank))), ad.float32)
    channels, outputs = x.shape[1].constant or 1, m.one((1, 4, 8, 17))
    groups = channels if m.chance(0.25) else 1
    outputs = channels * m.one((1, 2)) if groups > 1 else outputs
    kernel = [m.random.randint(1, 3) for _ in range(rank)]
    each = outputs if m.chance(0.4) else None
    w = _weights(m, (outputs, channels // groups, *kernel))
    w = m.builder.dequantize(w, _scale(m, each), _zero(m, ad.int8, each), axis=0)
    operands = [_bytes_of(m, x), w]
    if m.chance(0.5):
        operands.append(_few(m, (0.0, 1.5, -2.0), outputs, ad.float32))
    y = m.builder.conv(*operands, groups=groups, **window(m, rank))
    m.exact.add(y.name)
    return _again(m, m.keep_exact(m.builder.relu(y), y) if m.chance(0.4) else y)


def integer_product(m: Maker) -> Value:
    """Sums of products of bytes less their zero points."""
    x = m.pick(lambda v: v.dtype in (ad.uint8, ad.int8) and 2 <= len(v.shape) <= 4)
    if x is None:
        x = m.input(m.shape(2, 3), m.one((ad.uint8, ad.int8)))
    kind = m.one((ad.uint8, ad.int8))
    y = m.make((x.shape[-1], m.size()), kind)
    made = m.builder.matmul_integer(x, y, _zero(m, x.dtype, None), _zero(m, kind, None))
    return m.keep_exact(made, x, y)


def _exact(m: Maker, low: int, high: int) -> Value:
    found = m.pick(
        lambda v: v.dtype == ad.float32 and v.name in m.exact and low <= len(v.shape) <= high
    )
    return m.input(m.shape(low, min(high, 3)), ad.float32) if found is None else found


def _bytes_of(m: Maker, x: Value) -> Value:
    """x as bytes hold it."""
    if m.specials:
        raise GraphError("no byte stands for NaN")
    to = m.one((ad.uint8, ad.int8))
    scale, zero = _scale(m, None), _zero(m, to, None)
    bytes_ = m.keep_exact(m.builder.quantize(x, scale, zero, to=to), x)
    return m.keep_exact(m.builder.dequantize(bytes_, scale, zero), x)


def _again(m: Maker, y: Value) -> Value:
    """y, as bytes hold it by chance."""
    return _bytes_of(m, y) if m.chance(0.5) else y


def _weights(m: Maker, shape: tuple[int, ...]) -> Value:
    numbers = numpy.random.default_rng(m.random.getrandbits(32))
    made = m.builder.constant(numbers.integers(-128, 128, shape).astype(numpy.int8))
    m.exact.add(made.name)
    return made


def _scale(m: Maker, count: int | None) -> Value:
    return _few(m, SCALES, count, ad.float32)


def _zero(m: Maker, kind: DType, count: int | None) -> Value:
    return _few(m, (0, 128, 3) if kind == ad.uint8 else (0, 0, -5), count, kind)


def _few(m: Maker, options: Sequence[float], count: int | None, kind: DType) -> Value:
    """A constant of some of these numbers; `count` None: of one, without an axis."""
    numbers = m.random.choices(options, k=1 if count is None else count)
    array = numpy.array(numbers, kind.numpy)
    made = m.builder.constant(array[0] if count is None else array)
    m.exact.add(made.name)
    return made


FAMILY = ((1, there_and_back), (1.2, product), (1.2, convolution), (0.8, integer_product))

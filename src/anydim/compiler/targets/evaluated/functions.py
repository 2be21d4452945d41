"""Semantics of the functions of loop IR that differ from those of the language, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from anydim.base.dtypes import DType, bfloat16, convert_array, float16, float32, from_numpy, int32


def convert(value: Any, wanted: DType) -> numpy.ndarray:
    """Convert lanes to another element type; float to integer saturates, NaN becomes 0."""
    array = numpy.atleast_1d(numpy.asarray(value))
    source = from_numpy(array.dtype)
    if source.is_float and wanted.is_integer and wanted.stored:
        return convert_array(convert(array, int32), wanted.numpy)
    if source.is_float and wanted.is_integer:
        array = convert_array(array, float32.numpy) if source.format is not None else array
        bounds = numpy.iinfo(wanted.numpy)
        inside = (array > bounds.min) & (array < bounds.max)
        whole = numpy.where(inside, array, 0).astype(wanted.numpy)
        whole[array >= bounds.max] = bounds.max
        whole[array <= bounds.min] = bounds.min
        return whole
    return convert_array(array, wanted.numpy)


def _power(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    if a.dtype.kind == "f":
        return numpy.power(a, b)
    raised = numpy.power(a, numpy.where(b < 0, 0, b).astype(b.dtype))
    sign = numpy.where(b % 2 == 0, 1, -1)
    inverse = numpy.where(a == 1, 1, numpy.where(a == -1, sign, 0))
    return numpy.where(b < 0, inverse, raised).astype(a.dtype)


def multiply_add(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    """Return a * b + c with one rounding; for float64 with two, the first to a longer type."""
    if a.dtype.kind != "f":
        return a * b + c
    wide = numpy.float64 if a.dtype != numpy.float64 else numpy.longdouble
    product, last = a.astype(wide) * b, c.astype(wide)
    total = product + last
    if a.dtype == numpy.float32:  # the rounding error breaks ties
        part = total - product
        lost = (product - (total - part)) + (last - part)
        middle = (total.view(numpy.int64) & (2**29 - 1) == 2**28) & (lost != 0)
        total = numpy.where(middle, numpy.nextafter(total, numpy.copysign(numpy.inf, lost)), total)
    return total.astype(a.dtype)


def _dot_bytes(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    left, right = a.view(numpy.uint8).reshape(-1, 4), b.view(numpy.int8).reshape(-1, 4)
    return c + (left.astype(numpy.int32) * right).sum(1, dtype=numpy.int32)


def _dot_bfloat16(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    left, right = (x.view(numpy.uint16).reshape(-1, 2).astype(numpy.uint32) << 16 for x in (a, b))
    total = c
    for half in (1, 0):  # the upper half first, as in vdpbf16ps
        x, y = (each[:, half].copy().view(numpy.float32) for each in (left, right))
        total = fused_flushing(x, y, total)
    return total


def fused_flushing(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    """Return a * b + c of bfloat16 a and b in float32, rounded once; subnormal numbers are zeros.

    The sum in float64 is exact where it decides the rounding: the product has 16 bits.
    """
    with numpy.errstate(all="ignore"):
        return _round(_flush(a).astype(numpy.float64) * _flush(b) + _flush(c))


def flushing_sum(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """Return a + b in float32; subnormal numbers are zeros."""
    with numpy.errstate(all="ignore"):
        return _round(_flush(a).astype(numpy.float64) + _flush(b))


def _round(exact: numpy.ndarray) -> numpy.ndarray:
    exact = numpy.where(abs(exact) < _TINY, numpy.copysign(0.0, exact), exact)
    return _flush(exact.astype(numpy.float32))


def _flush(x: numpy.ndarray) -> numpy.ndarray:
    return numpy.where(abs(x) < numpy.float32(2.0**-126), numpy.copysign(x.dtype.type(0), x), x)


_TINY = 2.0**-126 * (1 - 2.0**-25)  # rounds to a normal float32 with an unlimited exponent


def _leading_zeros(a: numpy.ndarray) -> numpy.ndarray:
    bits = 8 * a.dtype.itemsize
    return numpy.array([bits - value.bit_length() for value in a.tolist()], a.dtype)


def _ones(a: numpy.ndarray) -> numpy.ndarray:
    return numpy.array([value.bit_count() for value in a.tolist()], a.dtype)


OWN: dict[str, Callable[..., Any]] = {
    "dot_bytes": _dot_bytes,
    "dot_bfloat16": _dot_bfloat16,
    "pow": _power,
    "fma": multiply_add,
    "copysign": numpy.copysign,
    "exp_nonpositive": numpy.exp,
    "fast_min": lambda a, b: numpy.where(a < b, a, b),
    "fast_max": lambda a, b: numpy.where(a > b, a, b),
    "isinf": lambda a: numpy.isinf(a) if a.dtype.kind == "f" else numpy.zeros(len(a), bool),
    "ones": _ones,
    "leading_zeros": _leading_zeros,
    "trailing_zeros": lambda a: _ones(~a & (a - a.dtype.type(1))),
}
NARROW = frozenset({float16.numpy, bfloat16.numpy})
PLAIN: dict[str, Callable[[int, int], Any]] = {
    "add": lambda a, b: wrap(a + b),
    "sub": lambda a, b: wrap(a - b),
    "mul": lambda a, b: wrap(a * b),
    "min": min,
    "max": max,
    "floordiv": lambda a, b: wrap(a // b) if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "equal": lambda a, b: numpy.array([a == b]),
    "not_equal": lambda a, b: numpy.array([a != b]),
    "less": lambda a, b: numpy.array([a < b]),
    "less_equal": lambda a, b: numpy.array([a <= b]),
    "greater": lambda a, b: numpy.array([a > b]),
    "greater_equal": lambda a, b: numpy.array([a >= b]),
    "add_overflows": lambda a, b: numpy.array([wrap(a + b) != a + b]),
    "mul_overflows": lambda a, b: numpy.array([wrap(a * b) != a * b]),
}
_REDUCED: dict[str, numpy.ufunc] = {
    "add": numpy.add,
    "mul": numpy.multiply,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "fast_min": numpy.minimum,
    "fast_max": numpy.maximum,
}


def reduce_lanes(function: str, lanes: numpy.ndarray) -> numpy.ndarray:
    """Reduce all lanes half by half, as machine code does: sums have its bits."""
    combine = _REDUCED[function]
    while len(lanes) > 1 and len(lanes) % 2 == 0:
        lanes = combine(*numpy.split(lanes, 2))
    return combine.reduce(lanes)


def wrap(value: int) -> int:
    """Wrap an integer to 64 bits."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63

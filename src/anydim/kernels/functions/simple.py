"""Functions of a few operations: signs, tests for special numbers, the inverse square root."""

from __future__ import annotations

import math

from anydim.kernels import ir
from anydim.kernels.functions.writer import Lanes


def copysign(v: Lanes, size: ir.Value, sign: ir.Value) -> ir.Value:
    """The magnitude of one number with the sign of another, by their bits."""
    i = v.bits
    top = -(1 << (v.dtype.bits - 1))
    magnitude = i.apply("bit_and", v.to_bits(size), i.constant(~top))
    negative = i.apply("bit_and", v.to_bits(sign), i.constant(top))
    return v.from_bits(i.apply("bit_or", magnitude, negative))


def sign(v: Lanes, x: ir.Value) -> ir.Value:
    """-1, 0 or 1 of a float, 0 of -0 too; NaN stays NaN."""
    plain = v.apply("not_equal", x, v.constant(0.0))
    ordered = v.apply("equal", x, x)
    return v.select(
        v.flag("and", plain, ordered), v.copysign(v.constant(1.0), x), v.add(x, v.constant(0.0))
    )


def integer_sign(v: Lanes, x: ir.Value) -> ir.Value:
    """-1, 0 or 1 of an integer."""
    zero, one = v.constant(0), v.constant(1)
    if v.dtype.kind != "int":
        return v.select(v.apply("equal", x, zero), zero, one)
    up = v.select(v.apply("greater", x, zero), one, zero)
    return v.select(v.apply("less", x, zero), v.constant(-1), up)


def next_after(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """The number after x on the way to y: as integers, neighbours of one sign differ by 1."""
    i, zero = v.bits, v.constant(0.0)
    away = v.flag("xor", v.apply("less", x, y), v.apply("less", x, zero))
    step = i.select(away, i.constant(1), i.constant(-1))
    beside = v.from_bits(i.add(v.to_bits(x), step))
    least = v.copysign(v.from_bits(i.constant(1)), y)
    moved = v.select(v.apply("equal", x, zero), least, beside)
    numbers = v.flag("and", v.apply("equal", x, x), v.apply("equal", y, y))
    reached = v.select(v.apply("equal", x, y), y, moved)
    return v.select(numbers, reached, v.add(x, y))


def rsqrt(v: Lanes, x: ir.Value) -> ir.Value:
    """1 / sqrt(x), each rounded."""
    return v.div(v.constant(1.0), v.sqrt(x))


def isnan(v: Lanes, x: ir.Value) -> ir.Value:
    """Whether a float is no number."""
    return v.apply("not_equal", x, x)


def isinf(v: Lanes, x: ir.Value) -> ir.Value:
    """Whether a float is an infinity."""
    return v.apply("equal", v.abs(x), v.constant(math.inf))


def never(v: Lanes, x: ir.Value) -> ir.Value:
    """False."""
    return ir.Const(v.flags, False)

"""Powers: of floats by exp and log, by products for some exponents; of integers by squaring."""

from __future__ import annotations

import math

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.functions.exponential import exp
from anydim.kernels.functions.logarithm import log
from anydim.kernels.functions.writer import Lanes


def power(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y of floats, with the special cases of C99."""
    one, zero = v.constant(1.0), v.constant(0.0)
    size = v.abs(x)
    result = exp(v, v.mul(y, log(v, size)))
    result = v.select(v.apply("equal", y, zero), one, result)
    whole = v.apply("equal", v.apply("trunc", y), y)
    half = v.mul(y, v.constant(0.5))
    even = v.apply("equal", v.apply("trunc", half), half)
    odd = v.flag("xor", whole, even)
    result = v.select(odd, v.copysign(result, x), result)
    negative = v.apply("less", x, zero)
    finite = v.apply("less", size, v.constant(math.inf))
    undefined = v.flag("and", v.flag("and", negative, finite), v.opposite(whole))
    result = v.select(undefined, v.constant(math.nan), result)
    minus_one = v.apply("equal", x, v.constant(-1.0))
    unbounded = v.apply("equal", v.abs(y), v.constant(math.inf))
    ones = v.flag("or", v.apply("equal", x, one), v.flag("and", minus_one, unbounded))
    return v.select(ones, one, result)


EXPONENTS = frozenset((-1, 0.5, 1, 2, 3))  # those of `constant_power`


def rounded(number: int | float | bool, dtype: DType) -> float:
    """A number as a float type holds it."""
    return float(dtype.numpy.type(number))


def constant_power(v: Lanes, x: ir.Value, exponent: float) -> ir.Value | None:
    """x^exponent by products or a root, for the exponents that numpy does so too."""
    if exponent == 1:
        return x
    if exponent == 2:
        return v.mul(x, x)
    if exponent == 3:
        return v.mul(v.mul(x, x), x)
    if exponent == -1:
        return v.div(v.constant(1.0), x)
    if exponent == 0.5:
        least = v.apply("equal", x, v.constant(-math.inf))  # as C99 has it; a root would be NaN
        return v.sqrt(v.select(least, v.constant(math.inf), v.add(x, v.constant(0.0))))
    return None


def integer_power(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y by squaring, wrapping; a negative power is 0 but for 1 and -1."""
    one, zero = v.constant(1), v.constant(0)
    left, inverse = y, None
    if v.dtype.kind == "int":
        negative = v.apply("less", y, zero)
        sign = v.select(v.bit(y, 1), v.constant(-1), one)
        inverse = v.select(v.apply("equal", x, v.constant(-1)), sign, zero)
        inverse = v.select(v.apply("equal", x, one), one, inverse)
        left = v.select(negative, zero, y)
    total, factor, rest = (v.writer.register(value) for value in (one, x, left))
    with v.loop(lambda: v.apply("not_equal", rest, zero)):
        v.writer.assign(total, v.select(v.bit(rest, 1), v.mul(total, factor), total))
        v.writer.assign(factor, v.mul(factor, factor))
        v.writer.assign(rest, v.shift_right(rest, 1))
    return v.writer.name(total) if inverse is None else v.select(negative, inverse, total)

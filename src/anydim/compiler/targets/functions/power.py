"""Powers: of floats by exp and log, or by multiplication; of integers by squaring."""

from __future__ import annotations

import math

from anydim.base.dtypes import DType
from anydim.compiler.kernels.ir import apply, select
from anydim.compiler.targets.functions.exponential import exp
from anydim.compiler.targets.functions.logarithm import log
from anydim.compiler.targets.functions.writer import Lanes, copysign, in_double, sqrt, while_any

EXPONENTS = frozenset((-1, 0.5, 1, 2, 3))  # exponents of `_constant_power`


def round_number(number: int | float | bool, dtype: DType) -> float:
    """Round a number to a float type."""
    return float(dtype.numpy.type(number))


def power(x: Lanes, y: Lanes) -> Lanes:
    """x^y of floats, with the special cases of C99."""
    exponent = y.writer.constant_of(y.value)
    simple = None if exponent is None else _constant_power(x, round_number(exponent, y.dtype))
    return _power(x, y) if simple is None else simple


@in_double
def _power(x: Lanes, y: Lanes) -> Lanes:
    size = abs(x)
    result = exp(y * log(size))
    result = select(y.equals(0.0), 1.0, result)
    whole = apply("trunc", y).equals(y)
    half = y * 0.5
    odd = whole ^ apply("trunc", half).equals(half)
    result = select(odd, copysign(result, x), result)
    undefined = (x < 0.0) & (size < math.inf) & ~whole
    result = select(undefined, math.nan, result)
    ones = x.equals(1.0) | (x.equals(-1.0) & abs(y).equals(math.inf))
    return select(ones, 1.0, result)


def _constant_power(x: Lanes, exponent: float) -> Lanes | None:
    """x^exponent by multiplications or a square root, for the same exponents as numpy."""
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == -1:
        return 1.0 / x
    if exponent == 0.5:  # -inf as in C99; a square root would be NaN
        return sqrt(select(x.equals(-math.inf), math.inf, x + 0.0))
    return None


def integer_power(x: Lanes, y: Lanes) -> Lanes:
    """x^y by squaring, wrapping; a negative power is 0 except for 1 and -1."""
    left, inverse = y, None
    if x.dtype.kind == "int":
        negative = y < 0
        inverse = select(x.equals(-1), select(y.bit(1), y.like(-1), 1), 0)
        inverse = select(x.equals(1), 1, inverse)
        left = select(negative, 0, y)
    total, factor, rest = (value.register() for value in (x.like(1), x, left))
    with while_any(lambda: rest.differs(0)):
        total.set(select(rest.bit(1), total * factor, total))
        factor.set(factor * factor)
        rest.set(rest >> 1)
    return total if inverse is None else select(negative, inverse, total)

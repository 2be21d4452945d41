"""fmod, mod and floordiv of floats: exact, by subtracting the divisor times powers of two."""

from __future__ import annotations

import math

from anydim.kernels import ir
from anydim.kernels.functions.writer import Lanes


def remainder(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """fmod, with the sign of x; NaN where x is not finite or y is 0.

    Lanes where |x| < |y| or that have no remainder stand still: `top` and `part` are such that
    neither loop changes them.
    """
    a, b = v.abs(x), v.abs(y)
    finite = v.apply("less", a, v.constant(math.inf))
    good = v.flag("and", finite, v.apply("greater", b, v.constant(0.0)))
    works = v.flag("and", good, v.apply("greater_equal", a, b))
    top = v.select(works, a, v.constant(-1.0))
    part = v.writer.register(b)
    with v.loop(lambda: v.apply("less_equal", v.add(part, part), top)):
        twice = v.add(part, part)
        v.writer.assign(part, v.select(v.apply("less_equal", twice, top), twice, part))
    least = v.select(works, b, v.constant(1.0))
    v.writer.assign(part, v.select(works, part, v.constant(0.0)))
    rest = v.writer.register(top)
    with v.loop(lambda: v.apply("greater_equal", part, least)):
        inside = v.apply("greater_equal", part, least)
        fits = v.flag("and", inside, v.apply("greater_equal", rest, part))
        v.writer.assign(rest, v.select(fits, v.sub(rest, part), rest))
        v.writer.assign(part, v.mul(part, v.constant(0.5)))
    result = v.select(works, v.copysign(rest, x), x)
    return v.select(good, result, v.constant(math.nan))


def modulo(v: Lanes, a: ir.Value, b: ir.Value) -> ir.Value:
    """numpy.mod: the remainder, moved to the sign of the divisor."""
    rest = remainder(v, a, b)
    fixed = v.select(_other_side(v, rest, b), v.add(rest, b), rest)
    zero = v.apply("equal", rest, v.constant(0.0))
    return v.select(zero, v.copysign(v.constant(0.0), b), fixed)


def floor_divide(v: Lanes, a: ir.Value, b: ir.Value) -> ir.Value:
    """numpy.floor_divide: exact for what the remainder says, not the floor of a rounded ratio."""
    rest = remainder(v, a, b)
    ratio = v.div(a, b)
    quotient = v.div(v.sub(a, rest), b)
    lowered = v.sub(quotient, v.constant(1.0))
    quotient = v.select(_other_side(v, rest, b), lowered, quotient)
    down = v.apply("floor", quotient)
    missing = v.apply("greater", v.sub(quotient, down), v.constant(0.5))
    down = v.select(missing, v.add(down, v.constant(1.0)), down)
    empty = v.apply("equal", quotient, v.constant(0.0))
    down = v.select(empty, v.copysign(v.constant(0.0), ratio), down)
    return v.select(v.apply("equal", b, v.constant(0.0)), ratio, down)


def _other_side(v: Lanes, rest: ir.Value, b: ir.Value) -> ir.Value:
    """Whether the remainder is not zero and its sign is not that of the divisor."""
    zero = v.constant(0.0)
    negative = v.flag("xor", v.apply("less", rest, zero), v.apply("less", b, zero))
    return v.flag("and", negative, v.apply("not_equal", rest, zero))

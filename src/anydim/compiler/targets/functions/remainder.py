"""fmod, mod and floordiv of floats: exact, by subtracting the divisor times powers of two."""

from __future__ import annotations

import math

from anydim.compiler.kernels.ir import apply, select
from anydim.compiler.targets.functions.writer import Lanes, copysign, while_any


def remainder(x: Lanes, y: Lanes) -> Lanes:
    """fmod, with the sign of x; NaN if x is not finite or y is 0.

    Lanes with |x| < |y| or without a remainder are inert: `top` and `part` are such that neither
    loop changes them.
    """
    a, b = abs(x), abs(y)
    good = (a < math.inf) & (b > 0.0)
    works = good & (a >= b)
    top = select(works, a, -1.0)
    part = b.register()
    with while_any(lambda: part + part <= top):
        twice = part + part
        part.set(select(twice <= top, twice, part))
    least = select(works, b, 1.0)
    part.set(select(works, part, 0.0))
    rest = top.register()
    with while_any(lambda: part >= least):
        fits = (part >= least) & (rest >= part)
        rest.set(select(fits, rest - part, rest))
        part.set(part * 0.5)
    return select(good, select(works, copysign(rest, x), x), math.nan)


def modulo(a: Lanes, b: Lanes) -> Lanes:
    """numpy.mod: the remainder with the sign of the divisor."""
    rest = remainder(a, b)
    fixed = select(_other_side(rest, b), rest + b, rest)
    return select(rest.equals(0.0), copysign(b.like(0.0), b), fixed)


def floor_divide(a: Lanes, b: Lanes) -> Lanes:
    """numpy.floor_divide: exact by the remainder, not the floor of a rounded ratio."""
    rest = remainder(a, b)
    ratio = a / b
    quotient = (a - rest) / b
    quotient = select(_other_side(rest, b), quotient - 1.0, quotient)
    down = apply("floor", quotient)
    down = select(quotient - down > 0.5, down + 1.0, down)
    down = select(quotient.equals(0.0), copysign(ratio.like(0.0), ratio), down)
    return select(b.equals(0.0), ratio, down)


def _other_side(rest: Lanes, b: Lanes) -> Lanes:
    """Whether the remainder is nonzero with a sign other than the divisor's."""
    return ((rest < 0.0) ^ (b < 0.0)) & rest.differs(0.0)

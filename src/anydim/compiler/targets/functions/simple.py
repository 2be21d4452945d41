"""Functions of a few operations: signs, tests for special numbers, the inverse square root."""

from __future__ import annotations

import math

from anydim.base.dtypes import boolean
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import select
from anydim.compiler.targets.functions.writer import Lanes, copysign, sqrt, type_of


def copied_sign(size: Lanes, sign: Lanes) -> Lanes:
    """The magnitude of one number with the sign of another, by bit operations."""
    top = -(1 << (size.dtype.bits - 1))
    return ((size.words & ~top) | (sign.words & top)).bits(size.dtype)


def sign(x: Lanes) -> Lanes:
    """-1, 0 or 1 of a float, 0 for -0; NaN stays NaN."""
    return select(x.differs(0.0) & x.equals(x), copysign(x.like(1.0), x), x + 0.0)


def integer_sign(x: Lanes) -> Lanes:
    """-1, 0 or 1 of an integer."""
    if x.dtype.kind != "int":
        return select(x.equals(0), x.like(0), 1)
    return select(x < 0, -1, select(x > 0, x.like(1), 0))


def next_after(x: Lanes, y: Lanes) -> Lanes:
    """The next float from x towards y: as integers, neighbours of one sign differ by 1."""
    words = x.words
    step = select((x < y) ^ (x < 0.0), words.like(1), -1)
    beside = (words + step).bits(x.dtype)
    least = copysign(words.like(1).bits(x.dtype), y)
    moved = select(x.equals(0.0), least, beside)
    numbers = x.equals(x) & y.equals(y)
    return select(numbers, select(x.equals(y), y, moved), x + y)


def rsqrt(x: Lanes) -> Lanes:
    """1 / sqrt(x), each rounded."""
    return 1.0 / sqrt(x)


def isnan(x: Lanes) -> Lanes:
    """Whether a float is NaN."""
    return x.differs(x)


def isinf(x: Lanes) -> Lanes:
    """Whether a float is infinite."""
    return abs(x).equals(math.inf)


def never(x: Lanes) -> Lanes:
    """False."""
    return x.of(ir.Const(type_of(boolean, x.lanes), False))

"""Many elements divided by one number, each rounded correctly, with one division for all of them.

    z = 1 / d                                      once
    q = x z,   r = q d - x,   x / d = q - r z      for each x; the last two are fused

z is the float nearest to 1 / d, and r is exact wherever q is near enough. Markstein's theorem
("Computation of elementary functions on the IBM RISC System/6000 processor", 1990; Handbook of
Floating-Point Arithmetic, the chapter on division): when q is within one unit of the last place of
x / d, q - r z rounds to the float nearest to x / d.

float32: x z may be 1.5 units off, when the significand of x is below that of d. Then q - r z is
within 2.5 * 2**-48 of x / d (significands in 1..2, r rounded to 24 bits included). A quotient that
near to the middle of two floats has abs(A * 2**25 - B * M) <= 4 for its integer significands A, B
and an odd M; `tests/unit/kernels/test_quotient.py` goes through all of those, and all come out
right. float64 has too many to walk: there q = x z + x e with e = z (1 - d z), which is within 0.51
units, one operation more.

All that holds while nothing overflows, and nothing below the least normal float is rounded: for
x and d between the bounds of `_RANGES`, where q is normal and r a multiple of the least subnormal.
In float32 +0 and -0 come out as themselves for d > 0 (x e may have the other sign). A vector with
any other element is divided; so is every vector of a row whose d is outside (0, negative, tiny,
infinite, NaN).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy

from anydim.base.dtypes import DType, boolean, float32, float64, uint32, uint64
from anydim.kernels import ir
from anydim.kernels.write.values import number, operate
from anydim.lang.tree import Apply, Expr, Literal

NAN = float("nan")


@dataclass(frozen=True)
class Range:
    """Powers of two: d is within 2**-divisor..2**divisor, x within 2**-element..2**element."""

    divisor: int
    element: int
    bits: DType
    fraction: int  # bits after the leading one
    bias: int

    def pattern(self, power: int) -> int:
        """The bits of 2**power."""
        return (self.bias + power) << self.fraction


# the least quotient is 2**-122, and r a multiple of 2**-137; in float64 there is more room
_RANGES = {float32: Range(32, 90, uint32, 23, 127), float64: Range(100, 700, uint64, 52, 1023)}
DIVISIONS = ("div", "quotient")


@dataclass(frozen=True)
class Divisor:
    """What all elements share, as expressions: a literal's are numbers, a row's are computed once.

    `least` and `span` bound the elements that need no division (NaN and 0: there are none); `none`
    is the element that needs none either.
    """

    dtype: DType
    value: Expr
    inverse: Expr
    rest: Expr | None
    least: Expr
    span: Expr
    none: Expr

    def values(self, part: bool, at: Callable[[Expr, DType], ir.Value]) -> Shared:
        """As values, by `at`; with `part` no element is negative or above d."""
        return Shared(
            at(self.value, self.dtype),
            at(self.inverse, self.dtype),
            None if self.rest is None else at(self.rest, self.dtype),
            at(self.least, self.dtype),
            None if part else at(self.span, _RANGES[self.dtype].bits),
            at(self.none, self.dtype),
        )


def divisor(expr: Expr, dtype: DType) -> Divisor | None:
    """A divisor that many elements share; None where they are better divided."""
    range_ = _RANGES.get(dtype)
    if range_ is None:
        return None
    low, high = 2.0**-range_.divisor, 2.0**range_.divisor
    least = Literal(2.0**-range_.element, dtype)
    none = Literal(0.0 if dtype == float32 else NAN, dtype)
    span = range_.pattern(range_.element) - range_.pattern(-range_.element)
    if isinstance(expr, Literal):
        if not low <= expr.value <= high:
            return None
        given = numpy.asarray(expr.value, dtype.numpy)
        one = dtype.numpy.type(1)
        inverse: Expr = Literal(float(one / given), dtype)
        rest = _rest(expr, inverse, dtype)
        return Divisor(dtype, expr, inverse, rest, least, Literal(span, range_.bits), none)
    inverse = Apply("div", (Literal(1.0, dtype), expr))
    inside = Apply("and", (
        Apply("greater_equal", (expr, Literal(low, dtype))),
        Apply("less_equal", (expr, Literal(high, dtype))),
    ))  # fmt: skip
    never = Literal(NAN, dtype)
    bits = range_.bits
    return Divisor(
        dtype,
        expr,
        inverse,
        _rest(expr, inverse, dtype),
        Apply("select", (inside, least, never)),
        Apply("select", (inside, Literal(span, bits), Literal(0, bits))),
        Apply("select", (inside, none, never)),
    )


def _rest(value: Expr, inverse: Expr, dtype: DType) -> Expr | None:
    """What 1 / d has beyond its float."""
    if dtype == float32:
        return None
    lost = Apply("sub", (Literal(1.0, dtype), Apply("mul", (value, inverse))))
    return Apply("mul", (inverse, lost))


@dataclass(frozen=True)
class Shared:
    """The values of a Divisor, in every lane; `span` is None for elements known as part of d."""

    value: ir.Value
    inverse: ir.Value
    rest: ir.Value | None
    least: ir.Value
    span: ir.Value | None
    none: ir.Value


def quotient(
    x: ir.Value, by: Shared, name: Callable[[ir.Value], ir.Value], register: str
) -> tuple[list[ir.Step], ir.Value]:
    """x / d, and the steps to take before it is read; `name` makes a Let where they stand."""
    kind = x.type
    q = operate("mul", x, by.inverse)
    if by.rest is not None:
        q = operate("fma", x, by.inverse, name(operate("mul", x, by.rest)))
    q = name(q)
    less = name(operate("fma", q, by.value, name(operate("neg", x))))
    result = operate("fma", name(operate("neg", less)), by.inverse, q)
    outside = name(_outside(x, by, name))
    divided = ir.Op(outside.type, "and", (outside, operate("not_equal", x, by.none)))
    some = ir.Var(outside.type, f"{register}_some")
    divide = ir.Assign(register, operate("div", x, by.value))
    again = (ir.Let(some.name, divided), ir.If(_any(some), (divide,), rare=True))
    steps: list[ir.Step] = [
        ir.Declare(register, result),
        ir.If(_any(outside), again, rare=True),
    ]
    return steps, ir.Get(kind, register)


def _outside(x: ir.Value, by: Shared, name: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Which elements are outside the range; 0 is, too."""
    if by.span is None:
        return operate("not", name(operate("greater_equal", x, by.least)))
    range_, lanes = _RANGES[x.type.dtype], x.type.lanes
    bits = ir.Bitcast(ir.Type(range_.bits, lanes), x)
    size = name(operate("bit_and", name(bits), number(range_.bits, _all_but_sign(range_), lanes)))
    start = number(range_.bits, range_.pattern(-range_.element), lanes)
    return operate("greater_equal", name(operate("sub", size, start)), by.span)


def _all_but_sign(range_: Range) -> int:
    return (1 << (range_.bits.bits - 1)) - 1


def _any(flags: ir.Value) -> ir.Value:
    return ir.Reduce(ir.Type(boolean), "max", flags)

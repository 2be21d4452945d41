"""Division of many elements by one number, correctly rounded, with one division for all of them.

    z = 1 / d                                      once
    q = x z,   r = q d - x,   x / d = q - r z      for each x; the last two are fused

z is the float nearest to 1 / d, and r is exact if q is accurate enough. Markstein's theorem
("Computation of elementary functions on the IBM RISC System/6000 processor", 1990; Handbook of
Floating-Point Arithmetic, the chapter on division): when q is within one ulp of x / d, q - r z
rounds to the float nearest to x / d.

float32: x z may be off by 1.5 ulps when the significand of x is below that of d. Then q - r z is
within 2.5 * 2**-48 of x / d (significands in 1..2, including the rounding of r to 24 bits). A
quotient that close to the midpoint of two floats has abs(A * 2**25 - B * M) <= 4 for its integer
significands A, B and an odd M; `test_exact_division.py` checks all cases.
float64 has too many to enumerate: it uses q = x z + x e with e = z (1 - d z), which is within 0.51
ulps, at the cost of one more operation.

All of this holds as long as nothing overflows and nothing below the smallest normal float is
rounded: for x and d within the bounds of `_RANGES`, where q is normal and r is a multiple of the
smallest subnormal. In float32, +0 and -0 are preserved for d > 0 (x e may have the other sign). A
vector with any element outside the range is divided; so is every vector of a row whose d is outside
(0, negative, tiny, infinite, NaN).

If d is the total of powers whose maximum is 1, d is in range, and the check per vector is omitted:
the elements from 2**-63 (float64: 2**-511) up to below 2 are those with the second bit of the
exponent set, and the bitwise AND of all powers is kept while they are summed (`any_small`). NaN has
that bit set too: then d is NaN, and so are the products.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from anydim.base.dtypes import DType, boolean, float32, float64, uint32, uint64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import Name
from anydim.compiler.kernels.ir import fma, number
from anydim.lang.tree import Apply, Expr, Literal


@dataclass(frozen=True)
class Range:
    """Exponents: d is within 2**-divisor..2**divisor, x within 2**-element..2**element."""

    divisor: int
    element: int
    bits: DType
    fraction: int  # explicit bits of the significand
    bias: int

    def pattern(self, power: int) -> int:
        """The bits of 2**power."""
        return (self.bias + power) << self.fraction

    @property
    def every(self) -> int:
        """All bits set."""
        return (1 << self.bits.bits) - 1

    @property
    def second(self) -> int:
        """The second highest bit of the exponent, set for numbers from 2**-63 to below 2."""
        return 1 << (self.bits.bits - 3)


# the smallest quotient is 2**-122, and r a multiple of 2**-137; float64 has more margin
_RANGES = {float32: Range(32, 90, uint32, 23, 127), float64: Range(100, 700, uint64, 52, 1023)}
DIVISIONS = ("div", "quotient")


@dataclass(frozen=True)
class Divisor:
    """A shared divisor as expressions: literals for a literal, computed once per row otherwise.

    `outside`: d is out of range; None for a literal, which never is.
    """

    dtype: DType
    value: Expr
    inverse: Expr
    rest: Expr | None
    outside: Expr | None

    def values(
        self, at: Callable[[Expr, DType], ir.Value], as_flag: Callable[[Expr, DType], ir.Value]
    ) -> Shared:
        """The divisor as IR values: numbers are broadcast by `at`, the flag is lowered by
        `as_flag`."""
        return Shared(
            at(self.value, self.dtype),
            at(self.inverse, self.dtype),
            None if self.rest is None else at(self.rest, self.dtype),
            None if self.outside is None else as_flag(self.outside, boolean),
        )


def divisor(expr: Expr, dtype: DType) -> Divisor | None:
    """The shared divisor of many elements; None where ordinary division is better."""
    range_ = _RANGES.get(dtype)
    if range_ is None:
        return None
    low, high = 2.0**-range_.divisor, 2.0**range_.divisor
    if isinstance(expr, Literal):
        if not low <= expr.value <= high:
            return None
        given = numpy.asarray(expr.value, dtype.numpy)
        inverse: Expr = Literal(float(dtype.numpy.type(1) / given), dtype)
        return Divisor(dtype, expr, inverse, _rest(expr, inverse, dtype), None)
    inverse = Apply("div", (Literal(1.0, dtype), expr))
    bits = range_.bits
    start, end = (Literal(range_.pattern(power * range_.divisor), bits) for power in (-1, 1))
    span = Literal(end.value - start.value, bits)
    outside = Apply("greater", (Apply("sub", (Apply("bits", (expr,)), start)), span))
    return Divisor(dtype, expr, inverse, _rest(expr, inverse, dtype), outside)


def _rest(value: Expr, inverse: Expr, dtype: DType) -> Expr | None:
    """1 / d minus its nearest float (float64 only)."""
    if dtype == float32:
        return None
    lost = Apply("sub", (Literal(1.0, dtype), Apply("mul", (value, inverse))))
    return Apply("mul", (inverse, lost))


@dataclass(frozen=True)
class Shared:
    """The values of a Divisor, in every lane; `outside` may be one flag for all lanes."""

    value: ir.Value
    inverse: ir.Value
    rest: ir.Value | None
    outside: ir.Value | None


def quotient(
    x: ir.Value, by: Shared, mask: ir.Value | None, name: Name, register: str
) -> tuple[list[ir.Step], ir.Value]:
    """x / d, and the steps that compute it; `name` emits a Let.

    Lanes where `mask` is false are not checked.

    The first check costs three operations and few vectors fail it; most that do contain 0. Branches
    compute only what they need: subnormal products take a hundred times as long.
    """
    product, again, exact = (_Branch(f"{register}_{branch}") for branch in "abc")
    product.steps.append(ir.Assign(register, divide_by_shared(x, by, product.name)))
    exact.steps.append(ir.Assign(register, divide_by_shared(x, by, exact.name)))
    divide = ir.Assign(register, x / by.value)
    some = _any(_outside(x, again.name), by, mask, again.name)
    again.steps.append(ir.If(some, (divide,), tuple(exact.steps), rare=True))
    unusual = _any(_unusual(x, name), by, mask, name)
    steps: list[ir.Step] = [
        ir.Declare(register, x),
        ir.If(unusual, tuple(again.steps), tuple(product.steps), rare=True),
    ]
    return steps, ir.Get(x.type, register)


class _Branch:
    """Steps of a branch, and names for its values."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.steps: list[ir.Step] = []

    def name(self, value: ir.Value) -> ir.Value:
        made = ir.Var(value.type, f"{self.prefix}{len(self.steps)}")
        self.steps.append(ir.Let(made.name, value))
        return made


def divide_by_shared(x: ir.Value, by: Shared, name: Name) -> ir.Value:
    """x / d for elements in range, without a division."""
    # A product with the reciprocal alone is off by one unit, and NaN for subnormal rows.
    q = name(x * by.inverse if by.rest is None else fma(x, by.inverse, x * by.rest))
    return fma(-fma(q, by.value, -x), by.inverse, q)


def _unusual(x: ir.Value, name: Name) -> ir.Value:
    """Elements outside 2**-63..2**65 (float64: 2**-511..2**513), tested by one bit; includes 0."""
    range_ = _RANGES[x.dtype]
    further = x.bits(range_.bits) - range_.second
    return name(further & 2 * range_.second).differs(0)


def _outside(x: ir.Value, name: Name) -> ir.Value:
    """Elements out of range, which are divided; includes 0 for float64 only."""
    range_ = _RANGES[x.dtype]
    size = name(x.bits(range_.bits) & range_.every >> 1)
    huge = size >= range_.pattern(range_.element)
    least = range_.pattern(-range_.element)
    if x.dtype == float32:  # 0 - 1 wraps to the maximum
        size, least = size - 1, least - 1
    return (size < least) | huge


def _any(flags: ir.Value, by: Shared, mask: ir.Value | None, name: Name) -> ir.Value:
    """Whether any element, or d, is flagged."""
    flags = flags if mask is None else flags & mask
    outside = by.outside
    if outside is not None and outside.type.lanes > 1:
        flags, outside = flags | outside, None
    some = name(flags.any)
    return some if outside is None else name(some | outside)


# ---- powers whose maximum is 1 -----------------------------------------------------------------


def supports_exact_division(dtype: DType) -> bool:
    """Whether powers of this dtype are divided by multiplication."""
    return dtype in _RANGES


def bits_of(kind: ir.Type) -> ir.Type:
    """The unsigned integer type of the same width as a float type."""
    return ir.Type(_RANGES[kind.dtype].bits, kind.lanes)


def all_bits(dtype: DType, lanes: int) -> ir.Value:
    """All bits set, the neutral element of AND."""
    return number(_RANGES[dtype].bits, _RANGES[dtype].every, lanes)


def any_small(common: ir.Value, dtype: DType, name: Name) -> ir.Value:
    """Whether any power is too small for multiplication, from the bitwise AND of all of them."""
    second = name(common & _RANGES[dtype].second)
    return name(second.equals(0).any)

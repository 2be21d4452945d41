"""exp, expm1, sigmoid and tanh: polynomials on a reduced argument, for float32 and float64.

The polynomial of float32 exp is a least-squares fit on Chebyshev nodes made for this file; float32
tanh is a rational fit as in Eigen.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32, float64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.functions.writer import Lanes


@dataclass(frozen=True)
class Exponential:
    """Constants of exp for one type: x = n ln2 + r, exp(x) = 2^n exp(r).

    `magic` makes the sum x*log2(e) + magic end in the bits of n + bias - 1.
    """

    magic: float
    shift: int
    low: float  # below it the result's exponent may not be a normal one
    least: float  # below it the result is 0
    high: float  # above it the result is inf
    ln2_high: float
    ln2_low: float
    tail: tuple[float, ...]  # (exp(r) - 1 - r) / r^2, highest power first


EXPONENTIALS = {
    float32: Exponential(
        magic=1.5 * 2**23 + 126,
        shift=23,
        low=-86.9,
        least=-104.0,
        high=88.73,
        ln2_high=0.693359375,
        ln2_low=-2.12194440e-4,
        tail=(
            0.0013814539415761828, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234,
            0.4999999403953552,
        ),
    ),
    float64: Exponential(
        magic=1.5 * 2**52 + 1022,
        shift=52,
        low=-708.0,
        least=-745.2,
        high=709.79,
        ln2_high=6.93147180369123816490e-01,
        ln2_low=1.90821492927058770002e-10,
        tail=tuple(1 / math.factorial(k) for k in range(13, 1, -1)),
    ),
}  # fmt: skip


def _reduced(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(r, bits that end in n + bias - 1) with x = n ln2 + r; x at most `high`."""
    c = EXPONENTIALS[v.dtype]
    shifted = v.fma(x, v.constant(math.log2(math.e)), v.constant(c.magic))
    n = v.sub(shifted, v.constant(c.magic))
    r = v.fma(n, v.constant(-c.ln2_high), x)
    r = v.fma(n, v.constant(-c.ln2_low), r)
    return r, v.to_bits(shifted)


def _scale(v: Lanes, bits: ir.Value) -> ir.Value:
    """2^(n-1) of bits that end in n + bias - 1."""
    return v.from_bits(v.bits.shift_left(bits, EXPONENTIALS[v.dtype].shift))


def exp(v: Lanes, x: ir.Value) -> ir.Value:
    """e^x."""
    return _power(v, v.below(EXPONENTIALS[v.dtype].high, x), x)


def exp_nonpositive(v: Lanes, x: ir.Value) -> ir.Value:
    """e^x where x is at most 0: the same bits."""
    return _power(v, x, x)


def exp_or_zero(v: Lanes, x: ir.Value) -> ir.Value:
    """e^x, 0 where that is no normal number: for what adds it to 1."""
    c = EXPONENTIALS[v.dtype]
    r, bits = _reduced(v, v.below(c.high, x))
    power = v.mul(v.polynomial(r, _doubled(c)), _scale(v, bits))
    return v.select(v.apply("less", x, v.constant(c.low)), v.constant(0.0), power)


def _power(v: Lanes, limited: ir.Value, x: ir.Value) -> ir.Value:
    """A power of two with a normal exponent, but for the lanes between `least` and `low`."""
    c = EXPONENTIALS[v.dtype]
    r, bits = _reduced(v, limited)
    power = v.polynomial(r, _doubled(c))
    result = v.writer.register(v.mul(power, _scale(v, bits)))
    small = v.apply("less", x, v.constant(c.low))
    with v.when_any(small):
        v.writer.assign(result, v.select(small, v.constant(0.0), result))
        subnormal = v.flag("and", small, v.apply("greater", x, v.constant(c.least)))
        with v.when_any(subnormal):
            lifted = _scale(v, v.bits.add(bits, v.bits.constant(_LIFT)))
            rounded = v.mul(v.mul(power, lifted), v.constant(2.0**-_LIFT))
            v.writer.assign(result, v.select(subnormal, rounded, result))
    return result


_LIFT = 64  # more than subnormal numbers have bits


def _doubled(c: Exponential) -> tuple[float, ...]:
    """The polynomial of 2 exp(r)."""
    return (*(2 * a for a in c.tail), 2.0, 2.0)


def expm1(v: Lanes, x: ir.Value) -> ir.Value:
    """e^x - 1, exact to the last places near 0 too."""
    c = EXPONENTIALS[v.dtype]
    r, bits = _reduced(v, v.above(-40.0, v.below(c.high, x)))
    scale = _scale(v, bits)
    small = v.fma(v.mul(r, r), v.polynomial(r, c.tail), r)
    half = v.fma(scale, small, v.sub(scale, v.constant(0.5)))
    return v.copysign(v.add(half, half), x)  # -0 stays -0


def sigmoid(v: Lanes, x: ir.Value) -> ir.Value:
    """1 / (1 + e^-x); e^x where that would be 1 / inf."""
    one = v.constant(1.0)
    bottom = v.add(one, exp_or_zero(v, v.neg(x)))
    result = v.writer.register(v.div(one, bottom))
    small = v.apply("less", x, v.constant(EXPONENTIALS[v.dtype].low))
    with v.when_any(small):
        v.writer.assign(result, v.select(small, exp(v, x), result))
    return v.quotient(result, one, bottom)


_TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_EVEN = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)


def tanh(v: Lanes, x: ir.Value) -> ir.Value:
    """Hyperbolic tangent."""
    if v.dtype == float32:
        limited = v.above(-9.5, v.below(9.5, x))  # there the quotient is just above 1
        square = v.mul(limited, limited)
        top = v.mul(limited, v.polynomial(square, _TANH_ODD))
        bottom = v.polynomial(square, _TANH_EVEN)
        result = v.above(-1.0, v.below(1.0, v.div(top, bottom)))
        return v.quotient(result, top, bottom)
    size = v.below(20.0, v.abs(x))
    e = expm1(v, v.add(size, size))
    return v.copysign(v.div(e, v.add(e, v.constant(2.0))), x)


def gated(v: Lanes, a: ir.Value, b: ir.Value) -> ir.Value | None:
    """a * b by one division where one of both is a sigmoid and the other one too, or a tanh.

    That is what gates of recurrent networks multiply. None for other factors. The denominator
    overflows only where the sigmoid is not a normal number, and then the product is 0.
    """
    parts, other_parts = v.writer.quotient_of(a), v.writer.quotient_of(b)
    if parts is None or other_parts is None:
        return None
    (top, bottom), (other_top, other_bottom) = parts, other_parts
    one = v.constant(1.0)
    if top != one:
        top, other_top = other_top, top
    if top != one:
        return None
    return v.div(other_top, v.mul(bottom, other_bottom))

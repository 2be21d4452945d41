"""exp, expm1, sigmoid and tanh: polynomials on a reduced argument, for float32 and float64.

The polynomial of float32 exp is a least-squares fit on Chebyshev nodes made for this file; float32
tanh is a rational fit as in Eigen.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32, float64
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.writer import Lanes, copysign


@dataclass(frozen=True)
class Exponential:
    """Constants of exp for one type: x = n ln2 + r, exp(x) = 2^n exp(r).

    `magic` rounds x*log2(e) so that the low bits of the sum are n.
    """

    magic: float
    bias: int  # exponent bias
    shift: int
    low: float  # the result is a normal number from here to -low
    least: float  # the result is 0 below
    last: float  # the largest argument with a finite result
    high: float  # an argument with result inf
    ln2_high: float
    ln2_low: float
    tail: tuple[float, ...]  # (exp(r) - 1 - r) / r^2, highest power first


EXPONENTIALS = {
    float32: Exponential(
        magic=1.5 * 2**23, bias=127, shift=23, low=-86.9, least=-104.0, last=88.72283, high=88.73,
        ln2_high=0.693359375, ln2_low=-2.12194440e-4,
        tail=(
            0.0013814539415761828, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234,
            0.4999999403953552,
        ),
    ),
    float64: Exponential(
        magic=1.5 * 2**52, bias=1023, shift=52, low=-708.0, least=-745.2, last=709.782712893384,
        high=709.79,
        ln2_high=6.93147180369123816490e-01, ln2_low=1.90821492927058770002e-10,
        tail=tuple(1 / math.factorial(k) for k in range(13, 1, -1)),
    ),
}  # fmt: skip


def _reduce_range(x: Lanes, more: int) -> tuple[Lanes, Lanes]:
    """Return (r, bits with n + more in the low bits), x = n ln2 + r."""
    c = EXPONENTIALS[x.dtype]
    shifted = fma(x, math.log2(math.e), c.magic + more)
    n = shifted - (c.magic + more)
    r = fma(n, -c.ln2_high, x)
    return fma(n, -c.ln2_low, r), shifted.words


def _scale(x: Lanes, bits: Lanes) -> Lanes:
    """Return 2^(n-1) for bits with n + bias - 1 in the low bits, in x's type."""
    return (bits << EXPONENTIALS[x.dtype].shift).bits(x.dtype)


def exp(x: Lanes) -> Lanes:
    """e^x."""
    return _power(x, EXPONENTIALS[x.dtype].last)


def exp_nonpositive(x: Lanes) -> Lanes:
    """e^x for x <= 0, bit-identical."""
    return _power(x, None)


def exp_or_zero(x: Lanes) -> Lanes:
    """e^x, flushed to 0 below the normal numbers, for sums with 1."""
    c = EXPONENTIALS[x.dtype]
    r, bits = _reduce_range(x.below(c.high), c.bias - 1)
    return select(x < c.low, 0.0, r.polynomial(_double_coefficients(c)) * _scale(x, bits))


def _power(x: Lanes, last: float | None) -> Lanes:
    """e^x; inf above `last`; None: x <= 0.

    The exponent is added to the bits of 2 exp(r); only arguments far from 0 need corrections.
    """
    c = EXPONENTIALS[x.dtype]
    r, bits = _reduce_range(x, -1)
    power = r.polynomial(_double_coefficients(c))
    result = (power.words + (bits << c.shift)).bits(x.dtype).register()
    near = x >= c.low if last is None else abs(x) <= -c.low  # false for NaN
    with (~near).when_any():
        small = ~(x >= c.low)
        result.set(select(small, x.above(0.0), result))
        if last is not None:
            result.set(select(x > last, math.inf, result))
        subnormal = small & (x > c.least)
        with subnormal.when_any():
            rounded = power * _scale(x, bits + (c.bias + _LIFT)) * 2.0**-_LIFT
            result.set(select(subnormal, rounded, result))
    return result


_LIFT = 64  # more than the bits of a subnormal number


def _double_coefficients(c: Exponential) -> tuple[float, ...]:
    """Return the polynomial of 2 exp(r)."""
    return (*(2 * a for a in c.tail), 2.0, 2.0)


def expm1(x: Lanes) -> Lanes:
    """e^x - 1, accurate near 0."""
    c = EXPONENTIALS[x.dtype]
    r, bits = _reduce_range(x.below(c.high).above(-40.0), c.bias - 1)
    scale = _scale(x, bits)
    small = fma(r * r, r.polynomial(c.tail), r)
    half = fma(scale, small, scale - 0.5)
    return copysign(half + half, x)  # -0 stays -0


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e^-x); e^x if that would be 1 / inf."""
    one = x.like(1.0)
    bottom = one + exp_or_zero(-x)
    result = (one / bottom).register()
    small = x < EXPONENTIALS[x.dtype].low
    with small.when_any():
        result.set(select(small, exp(x), result))
    return result.quotient(one, bottom)


_TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_EVEN = (
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03,
)  # fmt: skip


def tanh(x: Lanes) -> Lanes:
    """Hyperbolic tangent."""
    if x.dtype == float32:
        limited = x.below(9.5).above(-9.5)  # beyond, the quotient is just above 1
        square = limited * limited
        top = limited * square.polynomial(_TANH_ODD)
        bottom = square.polynomial(_TANH_EVEN)
        return (top / bottom).below(1.0).above(-1.0).quotient(top, bottom)
    size = abs(x).below(20.0)
    e = expm1(size + size)
    return copysign(e / (e + 2.0), x)


def multiply_gate(a: Lanes, b: Lanes) -> Lanes | None:
    """a * b with one division, if one is a sigmoid and the other one a sigmoid or a tanh.

    Gates of recurrent networks are such products. None for other factors. The denominator overflows
    only if the sigmoid is not a normal number, and then the product is 0.
    """
    parts, other_parts = (a.writer.quotient_of(factor.value) for factor in (a, b))
    if parts is None or other_parts is None:
        return None
    (top, bottom), (other_top, other_bottom) = parts, other_parts
    one = a.like(1.0).value
    if top != one:
        top, other_top = other_top, top
    if top != one:
        return None
    return a.of(other_top) / (a.of(bottom) * a.of(other_bottom))

"""log and log1p, for float32 and float64.

Sources: argument reduction and float64 kernel from FreeBSD's msun (Sun's fdlibm), float32 from
Moshier's Cephes.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.functions.exponential import EXPONENTIALS
from anydim.kernels.functions.writer import Lanes


def _split(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, e) with x = m 2^e, sqrt(1/2) <= m < sqrt(2), e as a float; x > 0."""
    single = v.dtype == float32
    shift, root = (23, 0x3F3504F3) if single else (52, 0x3FE6A09E667F3BCD)
    tiny = v.apply("less", x, v.constant(2.0**-126 if single else 2.0**-1022))
    scaled = v.select(tiny, v.mul(x, v.constant(2.0**shift)), x)
    i = v.bits
    bits = v.to_bits(scaled)
    exponent = i.shift_right(i.sub(bits, i.constant(root)), shift)
    mantissa = i.sub(bits, i.shift_left(exponent, shift))
    e = i.convert(exponent, v.dtype)
    e = v.sub(e, v.select(tiny, v.constant(float(shift)), v.constant(0.0)))
    return v.from_bits(mantissa), e


_LOG32 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG64 = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip


def log(v: Lanes, x: ir.Value) -> ir.Value:
    """Natural logarithm: -inf at 0, NaN below."""
    m, e = _split(v, x)
    f = v.sub(m, v.constant(1.0))
    c = EXPONENTIALS[v.dtype]
    half_square = v.mul(v.mul(f, f), v.constant(0.5))
    if v.dtype == float32:
        rest = v.mul(v.mul(f, v.mul(f, f)), v.polynomial(f, _LOG32))
        rest = v.fma(e, v.constant(c.ln2_low), rest)
    else:
        s = v.div(f, v.add(f, v.constant(2.0)))
        z = v.mul(s, s)
        series = v.mul(z, v.polynomial(z, _LOG64))
        rest = v.fma(s, v.add(half_square, series), v.mul(e, v.constant(c.ln2_low)))
    result = v.add(f, v.sub(rest, half_square))
    result = v.fma(e, v.constant(c.ln2_high), result)
    result = v.select(v.apply("equal", x, v.constant(0.0)), v.constant(-math.inf), result)
    result = v.select(v.apply("less", x, v.constant(0.0)), v.constant(math.nan), result)
    return v.select(v.apply("less", x, v.constant(math.inf)), result, x)


def log1p(v: Lanes, x: ir.Value) -> ir.Value:
    """log(1 + x): what the sum lost is given back."""
    one = v.constant(1.0)
    u = v.add(x, one)
    lost = v.sub(x, v.sub(u, one))
    result = v.add(log(v, u), v.div(lost, u))
    result = v.select(v.apply("equal", u, one), x, result)
    finite = v.apply("less", v.abs(u), v.constant(math.inf))
    regular = v.flag("and", finite, v.apply("not_equal", u, v.constant(0.0)))
    return v.select(regular, result, log(v, u))

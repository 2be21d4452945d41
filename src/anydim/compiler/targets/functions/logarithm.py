"""log and log1p, for float32 and float64.

Sources: argument reduction and float64 kernel from FreeBSD's msun (Sun's fdlibm), float32 from
Moshier's Cephes.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.exponential import EXPONENTIALS
from anydim.compiler.targets.functions.writer import Lanes, in_double


def _split(x: Lanes) -> tuple[Lanes, Lanes]:
    """Return (m, e), x = m 2^e, sqrt(1/2) <= m < sqrt(2), e as a float; x > 0."""
    single = x.dtype == float32
    shift, root = (23, 0x3F3504F3) if single else (52, 0x3FE6A09E667F3BCD)
    tiny = x < (2.0**-126 if single else 2.0**-1022)
    bits = select(tiny, x * 2.0**shift, x).words
    exponent = (bits - root) >> shift
    mantissa = bits - (exponent << shift)
    e = exponent.as_(x.dtype)
    return mantissa.bits(x.dtype), e - select(tiny, e.like(float(shift)), 0.0)


_LOG32 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG64 = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip


def log(x: Lanes) -> Lanes:
    """Natural logarithm: -inf at 0, NaN for negative numbers."""
    m, e = _split(x)
    f = m - 1.0
    c = EXPONENTIALS[x.dtype]
    half_square = f * f * 0.5
    if x.dtype == float32:
        rest = fma(e, c.ln2_low, f * (f * f) * f.polynomial(_LOG32))
    else:
        s = f / (f + 2.0)
        z = s * s
        rest = fma(s, half_square + z * z.polynomial(_LOG64), e * c.ln2_low)
    result = fma(e, c.ln2_high, f + (rest - half_square))
    result = select(x.equals(0.0), -math.inf, result)
    result = select(x < 0.0, math.nan, result)
    return select(x < math.inf, result, x)


@in_double
def log1p(x: Lanes) -> Lanes:
    """log(1 + x), corrected by the rounding error of the sum."""
    u = x + 1.0
    lost = x - (u - 1.0)
    result = log(u) + lost / u
    result = select(u.equals(1.0), x, result)
    regular = (abs(u) < math.inf) & u.differs(0.0)
    return select(regular, result, log(u))

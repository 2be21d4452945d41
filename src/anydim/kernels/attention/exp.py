"""exp of numbers that are not positive, which is all that softmax needs.

x = n ln2 + f ln2 with n whole and |f| <= 1/2; e^x = 2^n 2^f. The polynomial of degree 5 for 2^f is
a minimax fit of the relative error made for this file: 2.1e-7 at most in float32, the rounding
of its evaluation included. Below `LOW` the result is 0; NaN stays NaN.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32, int32
from anydim.kernels import ir
from anydim.kernels.ir import fma, select
from anydim.kernels.write.writer import Writer

LOW = -80.0  # e^-80 = 2e-35: products with it are still normal numbers
MAGIC = 1.5 * 2**23  # added, it leaves the nearest whole number in the low bits
POWER = (
    0.001327640376985073, 0.009675598703324795, 0.05550713837146759, 0.24022118747234344,
    0.6931469440460205, 1.0000001192092896,
)  # fmt: skip


def exp_nonpositive(code: Writer, x: ir.Value) -> ir.Value:
    """e^x in every lane of a float32 value at most 0."""
    x = code.let(x)
    shifted = code.let(fma(x, math.log2(math.e), MAGIC))
    part = code.let(fma(x, math.log2(math.e), -(shifted - MAGIC)))
    power = x.like(POWER[0])
    for coefficient in POWER[1:]:
        power = fma(power, part, coefficient)
    total = power.bits(int32) + (shifted.bits(int32) << 23)
    return code.let(select(x < LOW, 0, total).bits(float32))

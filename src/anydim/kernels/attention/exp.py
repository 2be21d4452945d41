"""exp of numbers that are not positive, which is all that softmax needs.

x = n ln2 + f ln2 with n whole and |f| <= 1/2; e^x = 2^n 2^f. The polynomial of degree 5 for 2^f is
a minimax fit of the relative error made for this file: 2.1e-7 at most in float32, the rounding
of its evaluation included. Below `LOW` the result is 0; NaN stays NaN.
"""

from __future__ import annotations

import math

from anydim.base.dtypes import float32, int32
from anydim.kernels import ir
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import number, operate

LOW = -80.0  # e^-80 = 2e-35: products with it are still normal numbers
MAGIC = 1.5 * 2**23  # added, it leaves the nearest whole number in the low bits
POWER = (
    0.001327640376985073, 0.009675598703324795, 0.05550713837146759, 0.24022118747234344,
    0.6931469440460205, 1.0000001192092896,
)  # fmt: skip


def exp_nonpositive(scope: Elements, x: ir.Value) -> ir.Value:
    """e^x in every lane of a float32 value at most 0."""
    lanes = x.type.lanes
    x = scope.name(x)

    def real(value: float) -> ir.Const:
        return number(float32, value, lanes)

    shifted = scope.name(operate("fma", x, real(math.log2(math.e)), real(MAGIC)))
    whole = scope.name(operate("sub", shifted, real(MAGIC)))
    part = operate("fma", x, real(math.log2(math.e)), scope.name(operate("neg", whole)))
    part = scope.name(part)
    power: ir.Value = real(POWER[0])
    for coefficient in POWER[1:]:
        power = scope.name(operate("fma", power, part, real(coefficient)))
    bits = ir.Type(int32, lanes)
    exponent = operate("shift_left", ir.Bitcast(bits, shifted), number(int32, 23, lanes))
    total = operate("add", scope.name(ir.Bitcast(bits, power)), scope.name(exponent))
    below = scope.name(operate("less", x, real(LOW)))
    kept = operate("select", below, number(int32, 0, lanes), scope.name(total))
    return scope.name(ir.Bitcast(ir.Type(float32, lanes), scope.name(kept)))

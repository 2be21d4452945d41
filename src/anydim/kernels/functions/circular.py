"""Circular functions in float64, and their inverses in float64 and float32.

Sources: argument reduction and kernels of sin, cos and asin from FreeBSD's msun (Sun's fdlibm),
atan from Moshier's Cephes. The polynomials for float32 are near-minimax fits of
(asin(sqrt z) / sqrt z - 1) / z over 0..1/4 and of the same for atan over 0..tan(pi/8)^2; they are
wrong by less than 0.02 of a unit in the last place.
"""

from __future__ import annotations

import math

import numpy

from anydim.base.dtypes import float64
from anydim.kernels import ir
from anydim.kernels.functions.large_angles import NEAR, reduced
from anydim.kernels.functions.writer import Lanes

_SIN = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
_COS = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
_HALF_PI = (
    1.5707963267341256e00, 6.0771005063039660e-11, 2.0222662487111665e-21, 8.4784276603689e-32,
)  # fmt: skip


def _quadrant(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(sin r, cos r, bits that end in n) with x = n pi/2 + r; NaN where x is not finite.

    Below `NEAR` n has 20 bits, and its products with the first three parts of pi/2 are exact.
    """
    magic = v.constant(1.5 * 2**52)
    shifted = v.fma(x, v.constant(2 / math.pi), magic)
    n = v.sub(shifted, magic)
    rest = x
    for part in _HALF_PI:
        rest = v.fma(n, v.constant(-part), rest)
    r, bits = v.writer.register(rest), v.writer.register(v.to_bits(shifted))
    far = v.apply("greater", v.abs(x), v.constant(NEAR))
    with v.when_any(far):
        far_rest, far_n = reduced(v, x)
        v.writer.assign(r, v.select(far, far_rest, r))
        v.writer.assign(bits, v.bits.select(far, far_n, bits))
    z = v.mul(r, r)
    sine = v.copysign(v.fma(v.mul(r, z), v.polynomial(z, _SIN), r), r)  # -0 stays -0
    cosine = v.fma(v.mul(z, z), v.polynomial(z, _COS), v.fma(z, v.constant(-0.5), v.constant(1.0)))
    return sine, cosine, bits


def sin(v: Lanes, x: ir.Value) -> ir.Value:
    """Sine of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    value = v.select(v.bits.bit(n, 1), cosine, sine)
    return v.select(v.bits.bit(n, 2), v.neg(value), value)


def cos(v: Lanes, x: ir.Value) -> ir.Value:
    """Cosine of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    value = v.select(v.bits.bit(n, 1), sine, cosine)
    following = v.bits.add(n, v.bits.constant(1))
    return v.select(v.bits.bit(following, 2), v.neg(value), value)


def tan(v: Lanes, x: ir.Value) -> ir.Value:
    """Tangent of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    odd = v.bits.bit(n, 1)
    top = v.select(odd, v.neg(cosine), sine)
    return v.div(top, v.select(odd, sine, cosine))


_ASIN_TOP = (
    3.47933107596021167570e-05, 7.91534994289814532176e-04, -4.00555345006794114027e-02,
    2.01212532134862925881e-01, -3.25565818622400915405e-01, 1.66666666666666657415e-01,
)  # fmt: skip
_ASIN_BOTTOM = (
    7.70381505559019352791e-02, -6.88283971605453293030e-01, 2.02094576023350569471e00,
    -2.40339491173441421878e00, 1.0,
)  # fmt: skip


_ASIN_SINGLE = (
    0.03756515309214592, 0.01440263818949461, 0.03181760385632515, 0.04451572149991989,
    0.07500510662794113, 0.16666659712791443,
)  # fmt: skip
_ATAN_SINGLE = (
    -0.06081138178706169, 0.10595132410526276, -0.1424373835325241, 0.1999848335981369,
    -0.33333316445350647,
)  # fmt: skip


def _angle(v: Lanes, value: float) -> tuple[ir.Value, ir.Value]:
    """A constant, and what of it is lost in the type that is computed in."""
    if v.dtype == float64:
        return v.constant(value), v.constant(0.0)
    near = float(numpy.float32(value))
    return v.constant(near), v.constant(value - near)


def _asin_parts(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(|x| > 1/2, asin |x| below or asin sqrt((1 - |x|) / 2) above)."""
    size = v.abs(x)
    outer = v.apply("greater", size, v.constant(0.5))
    mirrored = v.fma(size, v.constant(-0.5), v.constant(0.5))
    z = v.select(outer, mirrored, v.mul(x, x))
    root = v.select(outer, v.sqrt(mirrored), size)
    if v.dtype == float64:
        ratio = v.div(v.polynomial(z, _ASIN_TOP), v.polynomial(z, _ASIN_BOTTOM))
    else:
        ratio = v.polynomial(z, _ASIN_SINGLE)
    return outer, v.fma(root, v.mul(z, ratio), root)


def asin(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse sine; NaN outside -1..1."""
    outer, part = _asin_parts(v, x)
    right, rest = _angle(v, math.pi / 2)
    far = v.add(v.fma(part, v.constant(-2.0), right), rest)
    return v.copysign(v.select(outer, far, part), x)


def acos(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse cosine; NaN outside -1..1."""
    outer, part = _asin_parts(v, x)
    negative = v.apply("less", x, v.constant(0.0))
    right, rest = _angle(v, math.pi / 2)
    near = v.add(v.sub(right, v.copysign(part, x)), rest)
    twice = v.add(part, part)
    straight, lost = _angle(v, math.pi)
    far = v.select(negative, v.add(v.sub(straight, twice), lost), twice)
    return v.select(outer, far, near)


_ATAN_TOP = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_ATAN_BOTTOM = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip


def atan(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse tangent."""
    double = v.dtype == float64
    one = v.constant(1.0)
    size = v.abs(x)
    large = v.apply("greater", size, v.constant(2.41421356237309504880))
    middle = v.apply("greater", size, v.constant(0.66 if double else 0.414213562373095))
    ratio = v.div(v.sub(size, one), v.add(size, one))
    reduced = v.select(middle, ratio, size)
    reduced = v.select(large, v.div(v.constant(-1.0), size), reduced)
    half, right = _angle(v, math.pi / 4), _angle(v, math.pi / 2)
    base, rest = (
        v.select(large, far, v.select(middle, near, v.constant(0.0)))
        for near, far in zip(half, right)
    )
    z = v.mul(reduced, reduced)
    if double:
        rational = v.div(v.polynomial(z, _ATAN_TOP), v.polynomial(z, _ATAN_BOTTOM))
    else:
        rational = v.polynomial(z, _ATAN_SINGLE)
    result = v.add(base, v.fma(v.mul(reduced, z), rational, v.add(reduced, rest)))
    return v.copysign(result, x)

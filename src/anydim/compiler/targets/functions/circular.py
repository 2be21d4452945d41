"""Circular functions in float64, and their inverses in float64 and float32.

Sources: argument reduction and kernels of sin, cos and asin from FreeBSD's msun (Sun's fdlibm),
atan from Moshier's Cephes. The polynomials for float32 are near-minimax fits of (asin(sqrt z) /
sqrt z - 1) / z over 0..1/4 and of the same for atan over 0..tan(pi/8)^2; their error is below 0.02
ulp.
"""

from __future__ import annotations

import math

import numpy

from anydim.base.dtypes import float64
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.large_angles import NEAR, reduce_large_angle
from anydim.compiler.targets.functions.writer import Lanes, copysign, in_double, sqrt

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


def _quadrant(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Return (sin r, cos r, bits with n in the low bits), x = n pi/2 + r; NaN if x is not finite.

    Below `NEAR` n has 20 bits, and its products with the first three parts of pi/2 are exact.
    """
    magic = 1.5 * 2**52
    shifted = fma(x, 2 / math.pi, magic)
    n = shifted - magic
    rest = x
    for part in _HALF_PI:
        rest = fma(n, -part, rest)
    r, bits = rest.register(), shifted.words.register()
    far = abs(x) > NEAR
    with far.when_any():
        far_rest, far_n = reduce_large_angle(x)
        r.set(select(far, far_rest, r))
        bits.set(select(far, far_n, bits))
    z = r * r
    sine = copysign(fma(r * z, z.polynomial(_SIN), r), r)  # -0 stays -0
    cosine = fma(z * z, z.polynomial(_COS), fma(z, -0.5, 1.0))
    return sine, cosine, bits


@in_double
def sin(x: Lanes) -> Lanes:
    """Sine of an angle in radians."""
    sine, cosine, n = _quadrant(x)
    value = select(n.bit(1), cosine, sine)
    return select(n.bit(2), -value, value)


@in_double
def cos(x: Lanes) -> Lanes:
    """Cosine of an angle in radians."""
    sine, cosine, n = _quadrant(x)
    value = select(n.bit(1), sine, cosine)
    return select((n + 1).bit(2), -value, value)


@in_double
def tan(x: Lanes) -> Lanes:
    """Tangent of an angle in radians."""
    sine, cosine, n = _quadrant(x)
    odd = n.bit(1)
    return select(odd, -cosine, sine) / select(odd, sine, cosine)


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


def _angle(x: Lanes, value: float) -> tuple[Lanes, Lanes]:
    """Return a constant, and its rounding error in the type of x."""
    near = value if x.dtype == float64 else float(numpy.float32(value))
    return x.like(near), x.like(value - near)


def _asin_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """Return (|x| > 1/2, asin |x| below or asin sqrt((1 - |x|) / 2) above)."""
    size = abs(x)
    outer = size > 0.5
    mirrored = fma(size, -0.5, 0.5)
    z = select(outer, mirrored, x * x)
    root = select(outer, sqrt(mirrored), size)
    if x.dtype == float64:
        ratio = z.polynomial(_ASIN_TOP) / z.polynomial(_ASIN_BOTTOM)
    else:
        ratio = z.polynomial(_ASIN_SINGLE)
    return outer, fma(root, z * ratio, root)


def asin(x: Lanes) -> Lanes:
    """Inverse sine; NaN outside -1..1."""
    outer, part = _asin_parts(x)
    right, rest = _angle(x, math.pi / 2)
    far = fma(part, -2.0, right) + rest
    return copysign(select(outer, far, part), x)


def acos(x: Lanes) -> Lanes:
    """Inverse cosine; NaN outside -1..1."""
    outer, part = _asin_parts(x)
    right, rest = _angle(x, math.pi / 2)
    near = right - copysign(part, x) + rest
    twice = part + part
    straight, lost = _angle(x, math.pi)
    far = select(x < 0.0, straight - twice + lost, twice)
    return select(outer, far, near)


_ATAN_TOP = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_ATAN_BOTTOM = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip


def atan(x: Lanes) -> Lanes:
    """Inverse tangent."""
    double = x.dtype == float64
    size = abs(x)
    large = size > 2.41421356237309504880
    middle = size > (0.66 if double else 0.414213562373095)
    reduced = select(middle, (size - 1.0) / (size + 1.0), size)
    reduced = select(large, -1.0 / size, reduced)
    half, right = _angle(x, math.pi / 4), _angle(x, math.pi / 2)
    base, rest = (select(large, far, select(middle, near, 0.0)) for near, far in zip(half, right))
    z = reduced * reduced
    if double:
        ratio = z.polynomial(_ATAN_TOP) / z.polynomial(_ATAN_BOTTOM)
    else:
        ratio = z.polynomial(_ATAN_SINGLE)
    return copysign(base + fma(reduced * z, ratio, reduced + rest), x)

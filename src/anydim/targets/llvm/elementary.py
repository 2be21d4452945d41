"""exp, log, tanh, ... as polynomials, for float32 and float64, in instructions without branches.

exp, log, tanh, sigmoid and erf have their own float32 form. Every other function of float32 is
computed in float64 and rounded. Largest errors, in units of the last place, measured by
tests/unit/targets/test_elementary.py, stand in ACCURACY there.

Sources: argument reduction and kernels of log, sin, cos, asin from FreeBSD's msun (Sun's fdlibm);
float32 log and float64 atan from Moshier's Cephes; float32 tanh is a rational fit as in Eigen.
Polynomials of float32 exp and of erf are least-squares fits on Chebyshev nodes made for this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from anydim.base.dtypes import DType, float32, float64
from anydim.targets.llvm.lanes import Lanes

INF = math.inf
NAN = math.nan


@dataclass(frozen=True)
class Exponential:
    """Constants of exp for one type: x = n ln2 + r, exp(x) = 2^n exp(r).

    `magic` makes the sum x*log2(e) + magic end in the bits of n + bias - 1.
    """

    magic: float
    shift: int
    low: float  # below it the result is 0: its exponent would not be a normal one
    high: float  # above it the result is inf
    ln2_high: float
    ln2_low: float
    tail: tuple[float, ...]  # (exp(r) - 1 - r) / r^2, highest power first


_EXP = {
    float32: Exponential(
        magic=1.5 * 2**23 + 126,
        shift=23,
        low=-86.9,
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
        high=709.79,
        ln2_high=6.93147180369123816490e-01,
        ln2_low=1.90821492927058770002e-10,
        tail=tuple(1 / math.factorial(k) for k in range(13, 1, -1)),
    ),
}  # fmt: skip


def _reduced(v: Lanes, x: str) -> tuple[str, str]:
    """(r, 2^(n-1)) with x = n ln2 + r; x at most `high`."""
    c = _EXP[v.dtype]
    shifted = v.fma(x, v.constant(math.log2(math.e)), v.constant(c.magic))
    n = v.sub(shifted, v.constant(c.magic))
    r = v.fma(n, v.constant(-c.ln2_high), x)
    r = v.fma(n, v.constant(-c.ln2_low), r)
    scale = v.bits.binary("shl", v.to_bits(shifted), v.bits.constant(c.shift))
    return r, v.from_bits(scale)


def exp(v: Lanes, x: str) -> str:
    """e^x; results that are not normal numbers are 0."""
    c = _EXP[v.dtype]
    r, scale = _reduced(v, v.below(c.high, x))
    doubled = (*(2 * a for a in c.tail), 2.0, 2.0)
    power = v.mul(v.polynomial(r, doubled), scale)
    return v.select(v.compare("fcmp olt", x, v.constant(c.low)), v.constant(0.0), power)


def expm1(v: Lanes, x: str) -> str:
    """e^x - 1, exact to the last places near 0 too."""
    c = _EXP[v.dtype]
    r, scale = _reduced(v, v.above(-40.0, v.below(c.high, x)))
    small = v.fma(v.mul(r, r), v.polynomial(r, c.tail), r)
    half = v.fma(scale, small, v.sub(scale, v.constant(0.5)))
    return v.add(half, half)


def sigmoid(v: Lanes, x: str) -> str:
    """1 / (1 + e^-x)."""
    one = v.constant(1.0)
    bottom = v.add(one, exp(v, v.neg(x)))
    result = v.div(one, bottom)
    v.emitter.quotients[result] = one, bottom
    return result


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


def tanh(v: Lanes, x: str) -> str:
    """Hyperbolic tangent."""
    if v.dtype == float32:
        limited = v.above(-9.5, v.below(9.5, x))  # there the quotient is just above 1
        square = v.mul(limited, limited)
        top = v.mul(limited, v.polynomial(square, _TANH_ODD))
        bottom = v.polynomial(square, _TANH_EVEN)
        result = v.above(-1.0, v.below(1.0, v.div(top, bottom)))
        v.emitter.quotients[result] = top, bottom
        return result
    size = v.below(20.0, v.abs(x))
    e = expm1(v, v.add(size, size))
    return v.copysign(v.div(e, v.add(e, v.constant(2.0))), x)


def gated(v: Lanes, a: str, b: str) -> str | None:
    """a * b by one division where one of both is a sigmoid and the other one too, or a tanh.

    That is what gates of recurrent networks multiply. None for other factors. The denominator
    overflows only where the sigmoid is not a normal number, and then the product is 0.
    """
    parts = v.emitter.quotients
    if a not in parts or b not in parts:
        return None
    (top, bottom), (other_top, other_bottom) = parts[a], parts[b]
    one = v.constant(1.0)
    if top != one:
        top, other_top = other_top, top
    if top != one:
        return None
    return v.div(other_top, v.mul(bottom, other_bottom))


# ---- logarithms --------------------------------------------------------------------------------


def _split(v: Lanes, x: str) -> tuple[str, str]:
    """(m, e) with x = m 2^e, sqrt(1/2) <= m < sqrt(2), e as a float; x > 0."""
    single = v.dtype == float32
    shift, root = (23, 0x3F3504F3) if single else (52, 0x3FE6A09E667F3BCD)
    tiny = v.compare("fcmp olt", x, v.constant(2.0**-126 if single else 2.0**-1022))
    scaled = v.select(tiny, v.mul(x, v.constant(2.0**shift)), x)
    i = v.bits
    bits = v.to_bits(scaled)
    exponent = i.binary("ashr", i.binary("sub", bits, i.constant(root)), i.constant(shift))
    mantissa = i.binary("sub", bits, i.binary("shl", exponent, i.constant(shift)))
    e = i.cast("sitofp", exponent, v.dtype)
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


def log(v: Lanes, x: str) -> str:
    """Natural logarithm: -inf at 0, NaN below."""
    m, e = _split(v, x)
    f = v.sub(m, v.constant(1.0))
    c = _EXP[v.dtype]
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
    result = v.select(v.compare("fcmp oeq", x, v.constant(0.0)), v.constant(-INF), result)
    result = v.select(v.compare("fcmp olt", x, v.constant(0.0)), v.constant(NAN), result)
    return v.select(v.compare("fcmp ueq", x, v.constant(INF)), x, result)


def log1p(v: Lanes, x: str) -> str:
    """log(1 + x): what the sum lost is given back."""
    one = v.constant(1.0)
    u = v.add(x, one)
    lost = v.sub(x, v.sub(u, one))
    result = v.add(log(v, u), v.div(lost, u))
    result = v.select(v.compare("fcmp oeq", u, one), x, result)
    special = v.compare("fcmp ueq", v.abs(u), v.constant(INF))
    special = v.flag("or", special, v.compare("fcmp oeq", u, v.constant(0.0)))
    return v.select(special, log(v, u), result)


# ---- erf ---------------------------------------------------------------------------------------

_ERF32_LIMIT = 3.92
_ERF32 = (
    -0.000742401462, 0.0020294229, -0.0017343245, 0.00214024493, -0.00721073989, 0.0139374565,
    -0.0202942323, 0.0298629906, -0.0433319546, 0.0583450794, -0.0740383416, 0.0906043276,
    -0.10917782, 0.134084165, -0.180108652, 0.360736817,
)  # fmt: skip


def erf(v: Lanes, x: str) -> str:
    """The error function."""
    if v.dtype == float32:
        limited = v.above(-_ERF32_LIMIT, v.below(_ERF32_LIMIT, x))
        square = v.mul(limited, limited)
        t = v.fma(square, v.constant(2 / _ERF32_LIMIT**2), v.constant(-1.0))
        return v.mul(limited, v.polynomial(t, _ERF32))
    return _erf64(v, x)


_ERF64_SMALL = (
    7.9467459131851484e-14, 3.0312944048328086e-14, -5.2479139516851259e-13,
    9.1285090681241142e-12, -2.0350987356374546e-10, 4.115833905798806e-09,
    -7.5115576152363022e-08, 1.223382727893651e-06, -1.75371695250107e-05,
    0.00021751715604232256, -0.00228548556112364, 0.01985249668898368, -0.14053608902271844,
    0.96546873866986771,
)  # fmt: skip
_ERF64_LARGE = (
    3.8545496105926938e-06, -1.8863727502030267e-06, -1.4061868012707626e-05,
    2.7672021222134966e-05, 2.7546204701413355e-05, -0.00017437058044837952,
    4.3553551755778939e-05, 0.00098197758352671478, -0.00084714314923807694,
    -0.0069974617579574624, 0.0037328924018106952, 0.078978581016075231, 0.24165819424249885,
    0.4271858474139546, 0.2553956763105058,
)  # fmt: skip


def _erf64(v: Lanes, x: str) -> str:
    """x P(x^2) up to 1; beyond, 1 - exp(-x^2) Q(t) with t = (2 - |x|) / (2 + |x|)."""
    size = v.below(6.0, v.abs(x))
    square = v.mul(size, size)
    near = v.polynomial(v.sub(v.add(square, square), v.constant(1.0)), _ERF64_SMALL)
    two = v.constant(2.0)
    t = v.div(v.sub(two, size), v.add(two, size))
    decay = exp(v, v.neg(square))
    far = v.sub(v.constant(1.0), v.mul(decay, v.polynomial(t, _ERF64_LARGE)))
    inner = v.compare("fcmp olt", size, v.constant(1.0))
    return v.copysign(v.select(inner, v.mul(size, near), far), x)


# ---- circular functions, in float64 ------------------------------------------------------------

_SIN = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
_COS = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
_HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21)


def _quadrant(v: Lanes, x: str) -> tuple[str, str, str]:
    """(sin r, cos r, bits that end in n) with x = n pi/2 + r.

    Precise up to |x| of about 10^12 where there is a fused multiply-add, else 10^6. Beyond 2^50
    the angle is taken to be 2^50: results stay between -1 and 1 but mean nothing.
    """
    magic = v.constant(1.5 * 2**52)
    finite = v.compare("fcmp olt", v.abs(x), v.constant(INF))
    x = v.select(finite, v.above(-(2.0**50), v.below(2.0**50, x)), v.constant(NAN))
    shifted = v.fma(x, v.constant(2 / math.pi), magic)
    n = v.sub(shifted, magic)
    r = x
    for part in _HALF_PI:
        r = v.fma(n, v.constant(-part), r)
    z = v.mul(r, r)
    sine = v.copysign(v.fma(v.mul(r, z), v.polynomial(z, _SIN), r), r)  # -0 stays -0
    cosine = v.fma(v.mul(z, z), v.polynomial(z, _COS), v.fma(z, v.constant(-0.5), v.constant(1.0)))
    return sine, cosine, v.to_bits(shifted)


def _bit(v: Lanes, bits: str, bit: int) -> str:
    i = v.bits
    return i.compare("icmp ne", i.binary("and", bits, i.constant(bit)), i.constant(0))


def sin(v: Lanes, x: str) -> str:
    """Sine of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    value = v.select(_bit(v, n, 1), cosine, sine)
    return v.select(_bit(v, n, 2), v.neg(value), value)


def cos(v: Lanes, x: str) -> str:
    """Cosine of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    value = v.select(_bit(v, n, 1), sine, cosine)
    i = v.bits
    return v.select(_bit(v, i.binary("add", n, i.constant(1)), 2), v.neg(value), value)


def tan(v: Lanes, x: str) -> str:
    """Tangent of an angle in radians."""
    sine, cosine, n = _quadrant(v, x)
    odd = _bit(v, n, 1)
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


def _asin_parts(v: Lanes, x: str) -> tuple[str, str]:
    """(|x| > 1/2, asin |x| below or asin sqrt((1 - |x|) / 2) above)."""
    size = v.abs(x)
    outer = v.compare("fcmp ogt", size, v.constant(0.5))
    mirrored = v.fma(size, v.constant(-0.5), v.constant(0.5))
    z = v.select(outer, mirrored, v.mul(x, x))
    root = v.select(outer, v.intrinsic("sqrt", mirrored), size)
    ratio = v.div(v.polynomial(z, _ASIN_TOP), v.polynomial(z, _ASIN_BOTTOM))
    return outer, v.fma(root, v.mul(z, ratio), root)


def asin(v: Lanes, x: str) -> str:
    """Inverse sine; NaN outside -1..1."""
    outer, part = _asin_parts(v, x)
    far = v.fma(part, v.constant(-2.0), v.constant(math.pi / 2))
    return v.copysign(v.select(outer, far, part), x)


def acos(v: Lanes, x: str) -> str:
    """Inverse cosine; NaN outside -1..1."""
    outer, part = _asin_parts(v, x)
    negative = v.compare("fcmp olt", x, v.constant(0.0))
    near = v.sub(v.constant(math.pi / 2), v.copysign(part, x))
    twice = v.add(part, part)
    far = v.select(negative, v.sub(v.constant(math.pi), twice), twice)
    return v.select(outer, far, near)


_ATAN_TOP = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_ATAN_BOTTOM = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip


def atan(v: Lanes, x: str) -> str:
    """Inverse tangent."""
    one = v.constant(1.0)
    size = v.abs(x)
    large = v.compare("fcmp ogt", size, v.constant(2.41421356237309504880))
    middle = v.compare("fcmp ogt", size, v.constant(0.66))
    ratio = v.div(v.sub(size, one), v.add(size, one))
    reduced = v.select(middle, ratio, size)
    reduced = v.select(large, v.div(v.constant(-1.0), size), reduced)
    base = v.select(middle, v.constant(math.pi / 4), v.constant(0.0))
    base = v.select(large, v.constant(math.pi / 2), base)
    z = v.mul(reduced, reduced)
    rational = v.div(v.polynomial(z, _ATAN_TOP), v.polynomial(z, _ATAN_BOTTOM))
    result = v.add(base, v.fma(v.mul(reduced, z), rational, reduced))
    return v.copysign(result, x)


# ---- hyperbolic functions, in float64 ----------------------------------------------------------


def sinh(v: Lanes, x: str) -> str:
    """Hyperbolic sine, from m = e^(|x|/2) - 1 so that nothing overflows early."""
    m = expm1(v, v.mul(v.abs(x), v.constant(0.5)))
    one = v.constant(1.0)
    inverse = v.div(one, v.add(m, one))
    half = v.mul(v.mul(m, v.constant(0.5)), v.add(m, v.constant(2.0)))
    return v.copysign(v.mul(half, v.fma(inverse, inverse, one)), x)


def cosh(v: Lanes, x: str) -> str:
    """Hyperbolic cosine, from h = e^(|x|/2)."""
    h = exp(v, v.mul(v.abs(x), v.constant(0.5)))
    half = v.constant(0.5)
    inverse = v.div(v.constant(1.0), h)
    return v.fma(v.mul(h, half), h, v.mul(v.mul(inverse, half), inverse))


def asinh(v: Lanes, x: str) -> str:
    """Inverse hyperbolic sine."""
    size = v.abs(x)
    one = v.constant(1.0)
    square = v.mul(size, size)
    root = v.intrinsic("sqrt", v.add(square, one))
    near = log1p(v, v.add(size, v.div(square, v.add(root, one))))
    far = v.add(log(v, size), v.constant(math.log(2)))
    return v.copysign(v.select(_huge(v, size), far, near), x)


def acosh(v: Lanes, x: str) -> str:
    """Inverse hyperbolic cosine; NaN below 1."""
    t = v.sub(x, v.constant(1.0))
    root = v.intrinsic("sqrt", v.fma(t, t, v.add(t, t)))
    near = log1p(v, v.add(t, root))
    far = v.add(log(v, x), v.constant(math.log(2)))
    return v.select(_huge(v, x), far, near)


def atanh(v: Lanes, x: str) -> str:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    size = v.abs(x)
    ratio = v.div(v.add(size, size), v.sub(v.constant(1.0), size))
    return v.copysign(v.mul(log1p(v, ratio), v.constant(0.5)), x)


def _huge(v: Lanes, size: str) -> str:
    return v.compare("fcmp ogt", size, v.constant(1e9))


# ---- powers ------------------------------------------------------------------------------------


def pow(v: Lanes, x: str, y: str) -> str:
    """x^y, with the special cases of C99."""
    one, zero = v.constant(1.0), v.constant(0.0)
    size = v.abs(x)
    result = exp(v, v.mul(y, log(v, size)))
    result = v.select(v.compare("fcmp oeq", y, zero), one, result)
    whole = v.compare("fcmp oeq", v.intrinsic("trunc", y), y)
    half = v.mul(y, v.constant(0.5))
    even = v.compare("fcmp oeq", v.intrinsic("trunc", half), half)
    odd = v.flag("xor", whole, even)
    result = v.select(odd, v.copysign(result, x), result)
    negative = v.compare("fcmp olt", x, zero)
    finite = v.compare("fcmp olt", size, v.constant(INF))
    undefined = v.flag("and", v.flag("and", negative, finite), v.opposite(whole))
    result = v.select(undefined, v.constant(NAN), result)
    minus_one = v.compare("fcmp oeq", x, v.constant(-1.0))
    unbounded = v.compare("fcmp oeq", v.abs(y), v.constant(INF))
    ones = v.flag("or", v.compare("fcmp oeq", x, one), v.flag("and", minus_one, unbounded))
    return v.select(ones, one, result)


Elementary = Callable[..., str]

OWN_SINGLE: dict[str, Elementary] = {
    "exp": exp, "log": log, "tanh": tanh, "sigmoid": sigmoid, "erf": erf,
}  # fmt: skip
DOUBLE: dict[str, Elementary] = {
    **OWN_SINGLE,
    "expm1": expm1, "log1p": log1p, "sin": sin, "cos": cos, "tan": tan, "asin": asin,
    "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh,
    "atanh": atanh, "pow": pow,
}  # fmt: skip


def elementary(v: Lanes, name: str, arguments: list[str]) -> str:
    """An elementary function in the way its element type wants it."""
    if v.dtype == float64 or (v.dtype == float32 and name in OWN_SINGLE):
        return DOUBLE[name](v, *arguments)
    wide = v.like(float64)
    return v.narrow(DOUBLE[name](wide, *(v.widen(a) for a in arguments)))


def is_elementary(name: str, dtype: DType) -> bool:
    """Whether this module computes the function for floats."""
    return dtype.is_float and name in DOUBLE

"""Rows of special functions: gamma, Bessel, Airy, error functions, orthogonal polynomials.

All are computed in float64, and rounded to the type of the result. Approximations and intervals are
those of the Cephes library (`coefficients.py`), as in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy

from anydim.base.dtypes import float64, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Operand, TorchBuilder
from anydim.compiler.frontends.torch.rows.coefficients import TABLES

Function: TypeAlias = "Callable[..., Value]"
NAN, INFINITY = math.nan, math.inf


def wide(function: Function) -> Build:
    """A function of float64 values that broadcast, whatever the types of the operands."""

    def build(g: TorchBuilder, *operands: Operand) -> Value:
        values = [g.operand(value, float64) for value in operands]
        shape = g.broadcast(*values)
        return function(g, *(g.expand(v, shape=shape) if v.shape != shape else v for v in values))

    return build


def constants(g: TorchBuilder, numbers: Sequence[float]) -> Value:
    return g.constant(numpy.array(numbers, numpy.float64))


def polynomial(g: TorchBuilder, x: Value, numbers: Sequence[float]) -> Value:
    """The highest power first."""
    made = g.call_definition("polynomial", g.flat(x), constants(g, numbers))
    return g.reshape(made, shape=x.shape)


def chebyshev(g: TorchBuilder, x: Value, numbers: Sequence[float]) -> Value:
    """Half of a series of Chebyshev polynomials of x / 2, the highest first."""
    made = g.call_definition("chebyshev", g.flat(x), constants(g, numbers))
    return g.reshape(made, shape=x.shape)


def quotient(g: TorchBuilder, x: Value, name: str, over: str, under: str) -> Value:
    table = TABLES[name]
    return g.div(polynomial(g, x, table[over]), polynomial(g, x, table[under]))


def square(g: TorchBuilder, x: Value) -> Value:
    return g.mul(x, x)


# ---- Bessel ------------------------------------------------------------------------------------


def _far(g: TorchBuilder, x: Value, name: str, angle: float, second: bool) -> Value:
    """The asymptotic form for x > 5, of the first or the second kind."""
    ratio = g.div(5.0, x)
    z = square(g, ratio)
    p, q = quotient(g, z, name, "PP", "PQ"), g.mul(ratio, quotient(g, z, name, "QP", "QQ"))
    turned = g.sub(x, angle)
    sine, cosine = g.sin(turned), g.cos(turned)
    if second:
        made = g.add(g.mul(p, sine), g.mul(q, cosine))
    else:
        made = g.sub(g.mul(p, cosine), g.mul(q, sine))
    return g.div(g.mul(made, math.sqrt(2 / math.pi)), g.sqrt(x))


def bessel_j0(g: TorchBuilder, x: Value) -> Value:
    x = g.abs(x)
    z = square(g, x)
    roots = g.mul(g.sub(z, 5.78318596294678452118), g.sub(z, 30.4712623436620863991))
    near = g.mul(roots, quotient(g, z, "bessel_j0", "RP", "RQ"))
    far = _far(g, g.maximum(x, 5.0), "bessel_j0", math.pi / 4, False)
    return g.where(g.less_equal(x, 5.0), near, far)


def bessel_j1(g: TorchBuilder, x: Value) -> Value:
    size = g.abs(x)
    z = square(g, size)
    roots = g.mul(g.sub(z, 14.6819706421238932572), g.sub(z, 49.2184563216946036703))
    near = g.mul(g.mul(quotient(g, z, "bessel_j1", "RP", "RQ"), size), roots)
    far = _far(g, g.maximum(size, 5.0), "bessel_j1", 3 * math.pi / 4, False)
    made = g.where(g.less_equal(size, 5.0), near, far)
    return g.where(g.less(x, 0.0), g.neg(made), made)


def _of_positive(g: TorchBuilder, x: Value, made: Value, at_zero: float) -> Value:
    made = g.where(g.equal(x, 0.0), g.scalar(at_zero, float64), made)
    return g.where(g.less(x, 0.0), g.scalar(NAN, float64), made)


def bessel_y0(g: TorchBuilder, x: Value) -> Value:
    z = square(g, x)
    logs = g.mul(g.log(g.abs(x)), bessel_j0(g, x))
    near = g.add(quotient(g, z, "bessel_y0", "YP", "YQ"), g.mul(logs, 2 / math.pi))
    far = _far(g, g.maximum(x, 5.0), "bessel_y0", math.pi / 4, True)
    return _of_positive(g, x, g.where(g.less_equal(x, 5.0), near, far), -INFINITY)


def bessel_y1(g: TorchBuilder, x: Value) -> Value:
    z = square(g, x)
    logs = g.sub(g.mul(bessel_j1(g, x), g.log(g.abs(x))), g.div(1.0, x))
    near = g.add(g.mul(x, quotient(g, z, "bessel_y1", "YP", "YQ")), g.mul(logs, 2 / math.pi))
    far = _far(g, g.maximum(x, 5.0), "bessel_y1", 3 * math.pi / 4, True)
    return _of_positive(g, x, g.where(g.less_equal(x, 5.0), near, far), -INFINITY)


def scaled_i(order: int) -> Function:
    """exp(-|x|) times the modified Bessel function of the first kind."""

    def function(g: TorchBuilder, x: Value) -> Value:
        table = TABLES[f"modified_bessel_i{order}"]
        size = g.abs(x)
        near = chebyshev(g, g.sub(g.mul(g.minimum(size, 8.0), 0.5), 2.0), table["A"])
        above = g.maximum(size, 8.0)
        far = g.div(chebyshev(g, g.sub(g.div(32.0, above), 2.0), table["B"]), g.sqrt(above))
        if order:
            near = g.mul(near, size)
        made = g.where(g.less_equal(size, 8.0), near, far)
        return g.where(g.less(x, 0.0), g.neg(made), made) if order else made

    return function


def modified_i(order: int) -> Function:
    def function(g: TorchBuilder, x: Value) -> Value:
        return g.mul(g.exp(g.abs(x)), scaled_i(order)(g, x))

    return function


def modified_k(order: int, scaled: bool) -> Function:
    """The modified Bessel function of the second kind, or exp(x) times it."""

    def function(g: TorchBuilder, x: Value) -> Value:
        table = TABLES[f"modified_bessel_k{order}"]
        low = g.minimum(x, 2.0)
        series = chebyshev(g, g.sub(square(g, low), 2.0), table["A"])
        logs = g.mul(g.log(g.mul(g.abs(low), 0.5)), modified_i(order)(g, low))
        near = g.sub(series, logs) if not order else g.add(logs, g.div(series, low))
        high = g.maximum(x, 2.0)
        far = g.div(chebyshev(g, g.sub(g.div(8.0, high), 2.0), table["B"]), g.sqrt(high))
        if scaled:
            near = g.mul(near, g.exp(low))
        else:
            far = g.mul(far, g.exp(g.neg(high)))
        return _of_positive(g, x, g.where(g.less_equal(x, 2.0), near, far), INFINITY)

    return function


def spherical_j0(g: TorchBuilder, x: Value) -> Value:
    z = square(g, x)
    terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
    near = polynomial(g, g.minimum(z, 0.25), terms[::-1])
    made = g.where(g.less(g.abs(x), 0.5), near, g.div(g.sin(x), x))
    return g.where(g.is_inf(x), g.scalar(0.0, float64), made)


def airy(g: TorchBuilder, x: Value) -> Value:
    """Ai: an oscillation below -2.09, a decay above 2.09, a series between."""
    size = g.abs(x)
    root = g.sqrt(g.maximum(size, 1.0))
    angle = g.div(g.mul(g.mul(g.maximum(size, 1.0), root), 2.0), 3.0)
    z = g.div(1.0, angle)
    zz = square(g, z)
    sine = g.add(1.0, g.mul(zz, quotient(g, zz, "airy_ai", "AFN", "AFD")))
    cosine = g.mul(z, quotient(g, zz, "airy_ai", "AGN", "AGD"))
    t = g.add(angle, math.pi / 4)
    scale = g.div(1 / math.sqrt(math.pi), g.sqrt(root))
    below = g.mul(scale, g.sub(g.mul(g.sin(t), sine), g.mul(g.cos(t), cosine)))
    decay = g.mul(g.mul(scale, 0.5), g.exp(g.neg(angle)))
    above = g.mul(decay, quotient(g, z, "airy_ai", "AN", "AD"))
    middle = g.reshape(g.call_definition("airy_series", g.flat(g.minimum(g.maximum(x, -3.0), 3.0))),
                       shape=x.shape)  # fmt: skip
    made = g.where(g.less(x, -2.09), below, g.where(g.greater_equal(x, 2.09), above, middle))
    made = g.where(g.greater(x, 103.892), g.scalar(0.0, float64), made)
    return g.where(g.is_inf(x), g.scalar(NAN, float64), made)


# ---- error functions ---------------------------------------------------------------------------


def scaled_erfc(g: TorchBuilder, x: Value) -> Value:
    """exp(x^2) * erfc(x)."""
    usual = g.minimum(x, 20.0)
    near = g.mul(g.exp(square(g, usual)), g.erfc(usual))
    far = g.maximum(x, 20.0)
    z = g.div(0.5, square(g, far))
    series = polynomial(g, z, (-945.0, 105.0, -15.0, 3.0, -1.0, 1.0))
    return g.where(g.less(x, 20.0), near, g.div(series, g.mul(far, math.sqrt(math.pi))))


def log_normal_share(g: TorchBuilder, x: Value) -> Value:
    """The logarithm of the standard normal distribution function."""
    t = g.mul(x, math.sqrt(0.5))
    low = g.sub(g.log(g.mul(scaled_erfc(g, g.neg(t)), 0.5)), square(g, t))
    high = g.log1p(g.mul(g.erfc(t), -0.5))
    return g.where(g.less(x, -1.0), low, high)


def normal_quantile(g: TorchBuilder, share: Value) -> Value:
    """The inverse of the standard normal distribution function."""
    least = math.exp(-2)
    upper = g.greater(share, 1 - least)
    y = g.where(upper, g.sub(1.0, share), share)
    away = g.sub(y, 0.5)
    z = square(g, away)
    middle = g.add(away, g.mul(away, g.mul(z, quotient(g, z, "ndtri", "P0", "Q0"))))
    middle = g.mul(middle, math.sqrt(2 * math.pi))
    x = g.sqrt(g.mul(g.log(g.minimum(y, least)), -2.0))
    inverse = g.div(1.0, x)
    near = g.mul(inverse, quotient(g, inverse, "ndtri", "P1", "Q1"))
    far = g.mul(inverse, quotient(g, inverse, "ndtri", "P2", "Q2"))
    tail = g.sub(g.sub(x, g.div(g.log(x), x)), g.where(g.less(x, 8.0), near, far))
    tail = g.where(upper, tail, g.neg(tail))
    made = g.where(g.greater(y, least), middle, tail)
    made = g.where(g.equal(share, 0.0), g.scalar(-INFINITY, float64), made)
    made = g.where(g.equal(share, 1.0), g.scalar(INFINITY, float64), made)
    outside = g.logical_or(g.less(share, 0.0), g.greater(share, 1.0))
    return g.where(outside, g.scalar(NAN, float64), made)


def inverse_erf(g: TorchBuilder, y: Value) -> Value:
    """A rational start, and two steps of Newton's method."""
    size = g.abs(y)
    z = square(g, y)
    over = polynomial(g, z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    under = polynomial(g, z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    middle = g.div(g.mul(y, over), under)
    w = g.sqrt(g.neg(g.log(g.mul(g.sub(1.0, size), 0.5))))
    end = g.div(polynomial(g, w, (1.641345311, 3.429567803, -1.624906493, -1.970840454)),
                polynomial(g, w, (1.637067800, 3.543889200, 1.0)))  # fmt: skip
    x = g.where(g.less_equal(size, 0.7), middle, g.where(g.less(y, 0.0), g.neg(end), end))
    for _ in range(2):
        slope = g.mul(g.exp(g.neg(square(g, x))), 2 / math.sqrt(math.pi))
        x = g.sub(x, g.div(g.sub(g.erf(x), y), slope))
    infinite = g.where(g.less(y, 0.0), g.scalar(-INFINITY, float64), g.scalar(INFINITY, float64))
    x = g.where(g.equal(size, 1.0), infinite, x)
    return g.where(g.greater(size, 1.0), g.scalar(NAN, float64), x)


# ---- gamma -------------------------------------------------------------------------------------


def log_gamma(g: TorchBuilder, x: Value) -> Value:
    """Stirling's series from 10 on; below, by the recurrence; below 1/2, by reflection."""
    low = g.less(x, 0.5)
    own = g.where(low, g.sub(1.0, x), x)
    made = g.reshape(g.call_definition("log_gamma", g.flat(own)), shape=x.shape)
    sine = g.abs(g.sin(g.mul(g.sub(x, g.floor(x)), math.pi)))
    mirrored = g.sub(math.log(math.pi), g.add(g.log(sine), made))
    made = g.where(low, mirrored, made)
    pole = g.logical_and(g.less_equal(x, 0.0), g.equal(x, g.floor(x)))
    infinite = g.logical_or(pole, g.is_inf(x))
    return g.where(infinite, g.scalar(INFINITY, float64), made)


def digamma(g: TorchBuilder, x: Value) -> Value:
    low = g.less(x, 0.0)
    own = g.where(low, g.sub(1.0, x), x)
    made = g.reshape(g.call_definition("digamma", g.flat(own)), shape=x.shape)
    rest = g.sub(x, g.trunc(x))
    mirrored = g.sub(made, g.div(math.pi, g.tan(g.mul(rest, math.pi))))
    made = g.where(low, mirrored, made)
    whole = g.logical_and(low, g.equal(x, g.trunc(x)))
    made = g.where(whole, g.scalar(NAN, float64), made)
    zero = g.where(g.sign_bit(x), g.scalar(INFINITY, float64), g.scalar(-INFINITY, float64))
    return g.where(g.equal(x, 0.0), zero, made)


def zeta(g: TorchBuilder, x: Value, q: Value) -> Value:
    """The sum of (q + k)^-x: some terms, then the series of Euler and Maclaurin."""
    made = g.reshape(g.call_definition("zeta", g.flat(x), g.flat(q)), shape=x.shape)
    made = g.where(g.equal(x, 1.0), g.scalar(INFINITY, float64), made)
    made = g.where(g.less(x, 1.0), g.scalar(NAN, float64), made)
    low = g.less_equal(q, 0.0)
    pole = g.logical_and(low, g.equal(q, g.floor(q)))
    complex_ = g.logical_and(low, g.not_equal(x, g.floor(x)))
    made = g.where(complex_, g.scalar(NAN, float64), made)
    return g.where(g.logical_and(pole, g.greater(x, 1.0)), g.scalar(INFINITY, float64), made)


def polygamma(g: TorchBuilder, order: int, x: Value) -> Value:
    """The derivative of digamma of an order: by the zeta function; of order 1 by reflection too."""
    (x,) = (g.operand(x, float64),)
    if order == 0:
        return digamma(g, x)
    sign = (-1) ** (order + 1) * math.factorial(order)
    if order > 1:
        return g.mul(zeta(g, g.fill_shape(x.shape, order + 1.0, float64), x), float(sign))
    low = g.less(x, 0.5)
    own = g.where(low, g.sub(1.0, x), x)
    made = zeta(g, g.fill_shape(x.shape, 2.0, float64), own)
    sine = g.sin(g.mul(g.sub(x, g.floor(x)), math.pi))
    mirrored = g.sub(g.div(math.pi**2, square(g, sine)), made)
    return g.where(low, mirrored, made)


def share_of_gamma(upper: bool) -> Function:
    """The regularised incomplete gamma function: a series, or a continued fraction above a + 1."""

    def function(g: TorchBuilder, a: Value, x: Value) -> Value:
        safe = g.where(g.greater(x, 0.0), x, g.scalar(1.0, float64))
        scale = g.exp(g.sub(g.sub(g.mul(a, g.log(safe)), safe), log_gamma(g, a)))
        flat = g.flat(a), g.flat(safe)
        series = g.mul(scale, g.reshape(g.call_definition("gamma_series", *flat), shape=a.shape))
        fraction = g.mul(
            scale, g.reshape(g.call_definition("gamma_fraction", *flat), shape=a.shape)
        )
        below = g.less(safe, g.add(a, 1.0))
        lower = g.where(below, series, g.sub(1.0, fraction))
        made = g.where(below, g.sub(1.0, series), fraction) if upper else lower
        made = g.where(g.equal(x, 0.0), g.scalar(1.0 if upper else 0.0, float64), made)
        made = g.where(g.is_inf(x), g.scalar(0.0 if upper else 1.0, float64), made)
        made = g.where(g.equal(a, 0.0), g.scalar(0.0 if upper else 1.0, float64), made)
        outside = g.logical_or(g.less(x, 0.0), g.less(a, 0.0))
        return g.where(outside, g.scalar(NAN, float64), made)

    return function


# ---- orthogonal polynomials --------------------------------------------------------------------


def recurrence(first: tuple[float, float], name: str, shifted: bool = False) -> Function:
    """A family by its recurrence: P0 = 1, P1 = first[0] * x + first[1], and `name` for the rest."""

    def function(g: TorchBuilder, x: Value, order: Value) -> Value:
        own = g.sub(g.mul(x, 2.0), 1.0) if shifted else x
        degree = g.cast(g.trunc(g.where(g.is_nan(order), g.scalar(0.0, float64), order)), to=int64)
        padded = g.pad(g.flat(degree), g.scalar(1, int64), before=(0,), after=(1,))
        most = g.find_size(g.maximum(g.reduce_max(padded, axes=(0,)), 1), "degree", 1, 100000)
        begin = g.add(g.mul(own, first[0]), first[1])
        made = g.call_definition(name, g.flat(own), g.flat(begin), g.flat(degree), M=most)
        made = g.reshape(made, shape=x.shape)
        return g.where(g.less(degree, 0), g.scalar(0.0, float64), made)

    return function


_CHEBYSHEV = {"t": (1.0, 0.0), "u": (2.0, 0.0), "v": (2.0, -1.0), "w": (2.0, 1.0)}
_OTHERS = {
    "hermite_polynomial_h": ((2.0, 0.0), "hermite"),
    "hermite_polynomial_he": ((1.0, 0.0), "probable_hermite"),
    "laguerre_polynomial_l": ((-1.0, 1.0), "laguerre"),
    "legendre_polynomial_p": ((1.0, 0.0), "legendre"),
}
_KINDS = ("default", "x_scalar", "n_scalar")
_ATEN: dict[str, Function] = {
    "special_airy_ai": airy, "special_bessel_j0": bessel_j0, "special_bessel_j1": bessel_j1,
    "special_bessel_y0": bessel_y0, "special_bessel_y1": bessel_y1,
    "special_modified_bessel_i0": modified_i(0), "special_modified_bessel_i1": modified_i(1),
    "special_modified_bessel_k0": modified_k(0, False),
    "special_modified_bessel_k1": modified_k(1, False),
    "special_scaled_modified_bessel_k0": modified_k(0, True),
    "special_scaled_modified_bessel_k1": modified_k(1, True),
    "special_log_ndtr": log_normal_share, "special_spherical_bessel_j0": spherical_j0,
    "i0": modified_i(0), "special_i0e": scaled_i(0), "special_i1": modified_i(1),
    "special_i1e": scaled_i(1), "digamma": digamma, "erfinv": inverse_erf,
    "special_erfcx": scaled_erfc, "lgamma": log_gamma, "special_ndtri": normal_quantile,
    "special_zeta": zeta, "igamma": share_of_gamma(False), "igammac": share_of_gamma(True),
}  # fmt: skip
_PRIMS = {
    "bessel_i0": "i0", "bessel_i0e": "special_i0e", "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e", "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1", "digamma": "digamma", "erf_inv": "erfinv",
    "erfcx": "special_erfcx", "lgamma": "lgamma", "ndtri": "special_ndtri",
    "zeta": "special_zeta", "spherical_bessel_j0": "special_spherical_bessel_j0",
    "igamma": "igamma", "igammac": "igammac",
}  # fmt: skip
"""Names of the same functions in `torch.ops.prims`."""

ROWS: dict[str, Build] = {
    **{f"prims.{name}.default": wide(_ATEN[own]) for name, own in _PRIMS.items()},
    **{f"{name}.default": wide(function) for name, function in _ATEN.items()},
    "special_zeta.self_scalar": wide(zeta), "special_zeta.other_scalar": wide(zeta),
    "polygamma.default": polygamma,
    **{f"special_{shift}chebyshev_polynomial_{letter}.{kind}":
       wide(recurrence(first, "chebyshev_polynomials", bool(shift)))
       for letter, first in _CHEBYSHEV.items() for shift in ("", "shifted_") for kind in _KINDS},
    **{f"special_{name}.{kind}": wide(recurrence(*record))
       for name, record in _OTHERS.items() for kind in _KINDS},
}  # fmt: skip

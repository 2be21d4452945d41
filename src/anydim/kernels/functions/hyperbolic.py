"""Hyperbolic functions and their inverses, in float64; tanh is in `exponential.py`."""

from __future__ import annotations

import math

from anydim.kernels import ir
from anydim.kernels.functions.exponential import exp, expm1
from anydim.kernels.functions.logarithm import log, log1p
from anydim.kernels.functions.writer import Lanes


def sinh(v: Lanes, x: ir.Value) -> ir.Value:
    """Hyperbolic sine, from m = e^(|x|/2) - 1 so that nothing overflows early."""
    m = expm1(v, v.mul(v.abs(x), v.constant(0.5)))
    one = v.constant(1.0)
    inverse = v.div(one, v.add(m, one))
    half = v.mul(v.mul(m, v.constant(0.5)), v.add(m, v.constant(2.0)))
    return v.copysign(v.mul(half, v.fma(inverse, inverse, one)), x)


def cosh(v: Lanes, x: ir.Value) -> ir.Value:
    """Hyperbolic cosine, from h = e^(|x|/2)."""
    h = exp(v, v.mul(v.abs(x), v.constant(0.5)))
    half = v.constant(0.5)
    inverse = v.div(v.constant(1.0), h)
    return v.fma(v.mul(h, half), h, v.mul(v.mul(inverse, half), inverse))


def asinh(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse hyperbolic sine."""
    size = v.abs(x)
    one = v.constant(1.0)
    square = v.mul(size, size)
    root = v.sqrt(v.add(square, one))
    near = log1p(v, v.add(size, v.div(square, v.add(root, one))))
    far = v.add(log(v, size), v.constant(math.log(2)))
    return v.copysign(v.select(_huge(v, size), far, near), x)


def acosh(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse hyperbolic cosine; NaN below 1."""
    t = v.sub(x, v.constant(1.0))
    root = v.sqrt(v.fma(t, t, v.add(t, t)))
    near = log1p(v, v.add(t, root))
    far = v.add(log(v, x), v.constant(math.log(2)))
    result = v.select(_huge(v, x), far, near)
    return v.select(v.apply("less", x, v.constant(1.0)), v.constant(math.nan), result)


def atanh(v: Lanes, x: ir.Value) -> ir.Value:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    size = v.abs(x)
    ratio = v.div(v.add(size, size), v.sub(v.constant(1.0), size))
    return v.copysign(v.mul(log1p(v, ratio), v.constant(0.5)), x)


def _huge(v: Lanes, size: ir.Value) -> ir.Value:
    return v.apply("greater", size, v.constant(1e9))

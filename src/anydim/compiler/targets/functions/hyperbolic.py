"""Hyperbolic functions and their inverses, in float64; tanh is in `exponential.py`."""

from __future__ import annotations

import math

from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.exponential import exp, expm1
from anydim.compiler.targets.functions.logarithm import log, log1p
from anydim.compiler.targets.functions.writer import Lanes, copysign, in_double, sqrt

_HUGE = 1e9  # sqrt(x^2 + 1) is x above


@in_double
def sinh(x: Lanes) -> Lanes:
    """Hyperbolic sine, from m = e^(|x|/2) - 1, which avoids early overflow."""
    m = expm1(abs(x) * 0.5)
    inverse = 1.0 / (m + 1.0)
    half = m * 0.5 * (m + 2.0)
    return copysign(half * fma(inverse, inverse, 1.0), x)


@in_double
def cosh(x: Lanes) -> Lanes:
    """Hyperbolic cosine, from h = e^(|x|/2)."""
    h = exp(abs(x) * 0.5)
    inverse = 1.0 / h
    return fma(h * 0.5, h, inverse * 0.5 * inverse)


@in_double
def asinh(x: Lanes) -> Lanes:
    """Inverse hyperbolic sine."""
    size = abs(x)
    square = size * size
    near = log1p(size + square / (sqrt(square + 1.0) + 1.0))
    far = log(size) + math.log(2)
    return copysign(select(size > _HUGE, far, near), x)


@in_double
def acosh(x: Lanes) -> Lanes:
    """Inverse hyperbolic cosine; NaN below 1."""
    t = x - 1.0
    near = log1p(t + sqrt(fma(t, t, t + t)))
    result = select(x > _HUGE, log(x) + math.log(2), near)
    return select(x < 1.0, math.nan, result)


@in_double
def atanh(x: Lanes) -> Lanes:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    size = abs(x)
    return copysign(log1p((size + size) / (1.0 - size)) * 0.5, x)

"""The error function, for float32 and float64.

The polynomials are least-squares fits on Chebyshev nodes made for this file.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.exponential import exp
from anydim.compiler.targets.functions.writer import Lanes, copysign

_ERF32_LIMIT = 3.92
_ERF32 = (
    -0.000742401462, 0.0020294229, -0.0017343245, 0.00214024493, -0.00721073989, 0.0139374565,
    -0.0202942323, 0.0298629906, -0.0433319546, 0.0583450794, -0.0740383416, 0.0906043276,
    -0.10917782, 0.134084165, -0.180108652, 0.360736817,
)  # fmt: skip


_COARSE_LIMIT = 3.1
_COARSE = (
    0.00770199113, -0.0218550563, 0.0303174928, -0.0445692204, 0.0754573494, -0.113233082,
    0.156446561, -0.222993985, 0.455308586,
)  # fmt: skip


def erf(x: Lanes) -> Lanes:
    """The error function."""
    if x.dtype == float32:
        return _odd_polynomial(x, _ERF32_LIMIT, _ERF32)
    return _erf64(x)


def coarse_erf(x: Lanes) -> Lanes:
    """The error function of float32 for results that are rounded to bfloat16.

    The error is at most 1e-4, that of x (1 + erf(x)) 3.7e-5, and 6e-8 from the limit on: the fit
    minimises the largest error of the latter, with the value 1 at the limit.
    """
    return _odd_polynomial(x, _COARSE_LIMIT, _COARSE)


def _odd_polynomial(x: Lanes, limit: float, coefficients: tuple[float, ...]) -> Lanes:
    limited = x.below(limit).above(-limit)
    t = fma(limited * limited, 2 / limit**2, -1.0)
    return limited * t.polynomial(coefficients)


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


def _erf64(x: Lanes) -> Lanes:
    """x P(x^2) up to 1; beyond, 1 - exp(-x^2) Q(t) with t = (2 - |x|) / (2 + |x|)."""
    size = abs(x).below(6.0)
    square = size * size
    near = (square + square - 1.0).polynomial(_ERF64_SMALL)
    t = (2.0 - size) / (2.0 + size)
    far = 1.0 - exp(-square) * t.polynomial(_ERF64_LARGE)
    return copysign(select(size < 1.0, size * near, far), x)

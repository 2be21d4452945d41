"""Sums of products of bfloat16 pairs, for processors without an instruction for them."""

from __future__ import annotations

from anydim.base.dtypes import float32, int32
from anydim.compiler.kernels.ir import fma, select
from anydim.compiler.targets.functions.writer import Lanes, copysign

_SMALLEST = 2.0**-126  # normal float32


def dot_bfloat16(a: Lanes, b: Lanes, total: Lanes) -> Lanes:
    """Return total + the products of two bfloat16 per lane, in the order of vdpbf16ps.

    The upper halves come first. Each product is added with one rounding; subnormal factors, sums
    and results are zeros with their sign.
    """
    left, right = a.bits(int32), b.bits(int32)
    total = _flush(total)
    for x, y in ((_upper(left), _upper(right)), (_upper(left << 16), _upper(right << 16))):
        total = _flush(fma(x, y, total))
    return total


def _upper(words: Lanes) -> Lanes:
    """The bfloat16 in the upper half of each word, as a float32."""
    return _flush((words & -0x10000).bits(float32))


def _flush(x: Lanes) -> Lanes:
    """Zeros for subnormal numbers."""
    return select(abs(x) < _SMALLEST, copysign(x.like(0.0), x), x)

"""Order-preserving unsigned keys of the same width as the elements.

NaN is the largest, as in numpy's sort, and equals itself; -0.0 equals 0.0.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import DTYPES, DType, boolean, from_numpy, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, select


def key_type(dtype: DType) -> DType:
    """The unsigned type of the keys of an element type."""
    return uint8 if dtype == boolean else DTYPES[f"uint{dtype.bits}"]


def numpy_keys(x: numpy.ndarray) -> numpy.ndarray:
    """`order_key` of an array."""
    dtype = from_numpy(x.dtype)
    wide = key_type(dtype).numpy
    if dtype == boolean or dtype.kind == "uint":
        return x.astype(wide)
    top = wide.type(1 << (dtype.bits - 1))
    if dtype.kind == "int":
        return x.view(wide) ^ top
    bits = (x + x.dtype.type(0)).view(wide)
    key = bits ^ numpy.where(bits & top, ~wide.type(0), top)
    return numpy.where(numpy.isnan(x), ~wide.type(0), key)


def order_key(x: ir.Value, descending: bool = False) -> ir.Value:
    """Unsigned integers that compare like the elements, or in reverse."""
    key = _ascending(x)
    return ~key if descending else key


def _ascending(x: ir.Value) -> ir.Value:
    dtype, wide = x.dtype, key_type(x.dtype)
    if dtype == boolean:
        return x.as_(uint8)
    if dtype.kind == "uint":
        return x
    top = 1 << (dtype.bits - 1)
    if dtype.kind == "int":
        return x.bits(wide) ^ top
    signed = (x + 0.0).bits(DTYPES[f"int{dtype.bits}"])  # -0.0 + 0.0 is 0.0
    spread = (signed >> (dtype.bits - 1)).bits(wide)  # all ones below zero
    key = signed.bits(wide) ^ (spread | top)
    return select(apply("isnan", x), 2 * top - 1, key)

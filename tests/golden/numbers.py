"""Numbers that are the same on every machine, with every version of numpy and of libm.

Each is the splitmix64 hash of its place and a seed (Steele, Lea, Flood: Fast splittable
pseudorandom number generators, 2014); floats are made from it by exact arithmetic alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy

from anydim.base.dtypes import DType

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def hashed(shape: Sequence[int], seed: str) -> numpy.ndarray:
    """uint64 of a shape; other seeds give other numbers."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    places = numpy.arange(1, int(numpy.prod(shape, dtype=numpy.int64)) + 1, dtype=numpy.uint64)
    with numpy.errstate(over="ignore"):
        mixed = places * numpy.uint64(_STEP) + numpy.uint64(start)
        for shift, factor in ((30, _FIRST), (27, _SECOND)):
            mixed = (mixed ^ (mixed >> numpy.uint64(shift))) * numpy.uint64(factor)
        return (mixed ^ (mixed >> numpy.uint64(31))).reshape(tuple(shape))


def floats(shape: Sequence[int], seed: str, low: float = -1.0, high: float = 1.0) -> numpy.ndarray:
    """float32 numbers low <= x < high, evenly spread."""
    steps = (hashed(shape, seed) >> numpy.uint64(40)).astype(numpy.float64) / 2.0**24
    return (low + (high - low) * steps).astype(numpy.float32)


def integers(shape: Sequence[int], seed: str, low: int = 0, high: int = 5) -> numpy.ndarray:
    """int64 numbers low <= x < high."""
    found = (hashed(shape, seed) >> numpy.uint64(1)).astype(numpy.int64)
    return low + found % (high - low)


def drawn(
    dtype: DType, shape: Sequence[int], seed: str, span: tuple[float, float] | None = None
) -> numpy.ndarray:
    """Numbers of a dtype from `span`: -1 to 1 of floats, 0 to 5 of integers unless it is given."""
    if dtype.is_float:
        return floats(shape, seed, *(span or (-1.0, 1.0))).astype(dtype.numpy)
    if dtype.is_integer:
        low, high = span or (0, 5)
        return integers(shape, seed, int(low), int(high)).astype(dtype.numpy)
    return (hashed(shape, seed) >> numpy.uint64(63)).astype(dtype.numpy)

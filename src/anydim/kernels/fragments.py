"""Fragments of matrices: which items have which elements, and what their product is, in numpy.

Items 4 * g + t of a warp, with g of 0..7 and t of 0..3, share them out as the PTX ISA says: "Matrix
fragments for mma.m16n8k8" of .tf32, and for "mma.m16n8k16" of .f16 and .bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy

from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.records import dataclass

WARP = 32  # items that multiply together: the first ones of a group, the next ones, ...
ROWS, COLUMNS = 16, 8  # of the sums
_DROPPED = 13  # bits of a float32's fraction that tf32 has not
Place = Callable[[int, int], tuple[int, int]]  # g, t -> row, column


@dataclass(frozen=True)
class Shares:
    """The place of each value that an item gives; with `each` elements, side by side along d."""

    depth: int  # d
    each: int
    left: tuple[Place, ...]
    right: tuple[Place, ...]


def _shares(each: int) -> Shares:
    half = 4 * each  # of d: what the items t have of it
    return Shares(
        2 * half, each,
        (
            lambda g, t: (g, each * t), lambda g, t: (g + 8, each * t),
            lambda g, t: (g, each * t + half), lambda g, t: (g + 8, each * t + half),
        ),
        (lambda g, t: (each * t, g), lambda g, t: (each * t + half, g)),
    )  # fmt: skip


SHARES: Mapping[DType, Shares] = {float32: _shares(1), float16: _shares(2), bfloat16: _shares(2)}
SUMS: tuple[Place, ...] = (
    lambda g, t: (g, 2 * t), lambda g, t: (g, 2 * t + 1),
    lambda g, t: (g + 8, 2 * t), lambda g, t: (g + 8, 2 * t + 1),
)  # fmt: skip


def multiplied(dtype: DType, given: Sequence[Sequence[numpy.ndarray]]) -> numpy.ndarray:
    """What the sums grow by; `given` has the left and right values of each item of a warp."""
    shares = SHARES[dtype]
    left, right = numpy.zeros((ROWS, shares.depth)), numpy.zeros((shares.depth, COLUMNS))
    for number, values in enumerate(given):
        places = [place(*divmod(number, 4)) for place in (*shares.left, *shares.right)]
        for index, ((row, column), value) in enumerate(zip(places, values, strict=True)):
            found = _elements(dtype, value)
            if index < len(shares.left):
                left[row, column : column + shares.each] = found
            else:
                right[row : row + shares.each, column] = found
    return left @ right


def rounded(values: numpy.ndarray) -> numpy.ndarray:
    """float32 with the fraction of tf32, to nearest, ties away from zero."""
    bits = values.view(numpy.uint32)
    half, kept = numpy.uint32(1 << (_DROPPED - 1)), numpy.uint32(0xFFFFFFFF >> _DROPPED << _DROPPED)
    made = ((bits + half) & kept).view(numpy.float32)
    return numpy.where(numpy.isnan(values), values, made)


def _elements(dtype: DType, value: numpy.ndarray) -> numpy.ndarray:
    """The numbers of a value: one of float32, two of 16 bits."""
    held = rounded(value) if dtype == float32 else value.view(dtype.numpy)
    return held.astype(numpy.float64)

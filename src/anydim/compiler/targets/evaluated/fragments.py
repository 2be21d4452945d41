"""Matrix multiply-accumulate on the fragments of a warp (`kernels/mma_fragments.py`), in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import DType, float32
from anydim.compiler.kernels.mma_fragments import COLUMNS, FRAGMENT_LAYOUTS, ROWS

_DROPPED = 13  # low bits of a float32's fraction, dropped in tf32


def multiply_fragments(dtype: DType, given: Sequence[Sequence[numpy.ndarray]]) -> numpy.ndarray:
    """Return the increments of the accumulators; `given` has the operands of each thread."""
    shares = FRAGMENT_LAYOUTS[dtype]
    left, right = numpy.zeros((ROWS, shares.depth)), numpy.zeros((shares.depth, COLUMNS))
    for number, values in enumerate(given):
        elements = [element(*divmod(number, 4)) for element in (*shares.left, *shares.right)]
        for index, ((row, column), value) in enumerate(zip(elements, values, strict=True)):
            found = _elements(dtype, value)
            if index < len(shares.left):
                left[row, column : column + shares.each] = found
            else:
                right[row : row + shares.each, column] = found
    return left @ right


def round_to_tf32(values: numpy.ndarray) -> numpy.ndarray:
    """Round float32 to tf32, to nearest, ties away from zero."""
    bits = values.view(numpy.uint32)
    half, kept = numpy.uint32(1 << (_DROPPED - 1)), numpy.uint32(0xFFFFFFFF >> _DROPPED << _DROPPED)
    made = ((bits + half) & kept).view(numpy.float32)
    return numpy.where(numpy.isnan(values), values, made)


def _elements(dtype: DType, value: numpy.ndarray) -> numpy.ndarray:
    """Unpack a value: one float32, or two elements of 16 bits."""
    held = round_to_tf32(value) if dtype == float32 else value.view(dtype.numpy)
    return held.astype(numpy.float64)

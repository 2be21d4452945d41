"""Where the elements of arrays begin, fast: a call asks it of every input and every result.

`array.ctypes.data` makes two objects and takes 0.9 us, more than a call of native code with all its
checks. The pointer stands behind the head of the object, as numpy's C interface promises
(`PyArrayObject_fields`); whether it does is looked up once. Elsewhere numpy is asked.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

import numpy

_HEAD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def _stands_there() -> bool:
    """Whether some arrays have their pointers behind their heads."""
    if sys.implementation.name != "cpython" or numpy.ndarray.__basicsize__ < _HEAD + 8:
        return False
    block = numpy.zeros(64, numpy.uint8)
    arrays = (block, block[8:], block[1:2], numpy.zeros((3, 0)), numpy.zeros(()))
    return all(_word_at(id(array) + _HEAD).value == array.ctypes.data for array in arrays)


def _looked_up(arrays: Iterable[numpy.ndarray]) -> list[int]:
    return [_word_at(id(array) + _HEAD).value for array in arrays]


def _asked(arrays: Iterable[numpy.ndarray]) -> list[int]:
    return [array.ctypes.data for array in arrays]


pointers = _looked_up if _stands_there() else _asked
"""The addresses of arrays: `pointers([x, y])`."""

"""Where the elements of arrays begin, and copies of a few bytes, fast: every call has some.

`array.ctypes.data` makes two objects and takes 0.9 us, more than a call of native code with all its
checks. The pointer stands behind the head of the object, as numpy's C interface promises
(`PyArrayObject_fields`); whether it does is looked up once. Elsewhere numpy is asked.

`ctypes.memmove` takes 0.4 us; slices of a view of all memory take half as long.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

import numpy

_MOST = 1 << 16  # bytes that are worth Python's lock
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


def _memory() -> memoryview | None:
    """All addresses, as bytes."""
    if sys.maxsize < 1 << 62:
        return None
    return memoryview((ctypes.c_char * sys.maxsize).from_address(0)).cast("B")


_all = _memory()


def fill(array: numpy.ndarray, source: int, bytes: int) -> None:
    """Copy so many bytes from an address to the beginning of an array."""
    target = _word_at(id(array) + _HEAD).value if pointers is _looked_up else array.ctypes.data
    if _all is not None and bytes <= _MOST:
        _all[target : target + bytes] = _all[source : source + bytes]
    else:
        ctypes.memmove(target, source, bytes)

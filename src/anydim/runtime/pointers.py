"""Where the elements of arrays begin, and copies of a few bytes, fast: every call has some.

`array.ctypes.data` makes two objects and takes 0.9 us, more than a call of native code with all its
checks. The pointer stands behind the head of the object, as numpy's C interface promises
(`PyArrayObject_fields`); whether it does is looked up once. Elsewhere numpy is asked.

All memory is seen through two views, of its bytes and of its words: `ctypes.memmove` takes 0.4 us,
slices of a view half as long; a word as an object of ctypes takes twice as long as one of a view.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from typing import Literal

import numpy

_MOST = 1 << 16  # bytes that are worth Python's lock
_HEAD = object.__basicsize__


def _all_memory(kind: Literal["B", "Q"], bytes: int) -> memoryview:
    """All addresses, as elements of so many bytes; nothing where addresses have no 64 bits."""
    count = sys.maxsize // bytes * bytes if sys.maxsize > 1 << 62 else 0
    return memoryview((ctypes.c_char * count).from_address(0)).cast("B").cast(kind)


_bytes, _words = _all_memory("B", 1), _all_memory("Q", 8)


def _stands_there() -> bool:
    """Whether some arrays have their pointers behind their heads."""
    if sys.implementation.name != "cpython" or numpy.ndarray.__basicsize__ < _HEAD + 8:
        return False
    if not _words or _HEAD % 8:
        return False
    block = numpy.zeros(64, numpy.uint8)
    arrays = (block, block[8:], block[1:2], numpy.zeros((3, 0)), numpy.zeros(()))
    return all(_looked_up([array]) == _asked([array]) for array in arrays)


def _looked_up(arrays: Iterable[numpy.ndarray]) -> list[int]:
    found = []
    for array in arrays:  # a comprehension takes half as long again for one or two
        found.append(_words[id(array) + _HEAD >> 3])
    return found


def _asked(arrays: Iterable[numpy.ndarray]) -> list[int]:
    return [array.ctypes.data for array in arrays]


HEADS = _stands_there()
"""Whether the pointers of arrays stand behind the heads of the objects."""

pointers = _looked_up if HEADS else _asked
"""The addresses of arrays: `pointers([x, y])`."""


def fill(array: numpy.ndarray, source: int, bytes: int) -> None:
    """Copy so many bytes from an address to the beginning of an array."""
    if bytes <= _MOST and pointers is _looked_up:
        target = _words[id(array) + _HEAD >> 3]
        _bytes[target : target + bytes] = _bytes[source : source + bytes]
    else:
        ctypes.memmove(pointers((array,))[0], source, bytes)

"""Arrays that end (or begin) at a page nobody may touch: going past them stops the process."""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy

_PAGE = mmap.PAGESIZE
_NONE, _BOTH = 0, 3  # PROT_NONE; PROT_READ | PROT_WRITE
_here = threading.local()
_libc = ctypes.CDLL(None, use_errno=True)


class Fences:
    """Memory beside forbidden pages: before them when `low`, else behind."""

    def __init__(self, low: bool) -> None:
        self.low = low
        self.held: list[tuple[mmap.mmap, int]] = []

    def empty(self, shape: Sequence[int] | int, dtype: Any = float) -> numpy.ndarray:
        """What numpy.empty gives, at a fence."""
        dtype = numpy.dtype(dtype)
        count = shape if isinstance(shape, int) else math.prod(shape)
        inside = max(1, -(-count * dtype.itemsize // _PAGE)) * _PAGE
        memory = mmap.mmap(-1, inside + _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        offset = _PAGE if self.low else inside - count * dtype.itemsize
        fence = start if self.low else start + inside
        _protect(fence, _NONE)
        self.held.append((memory, fence))
        return numpy.frombuffer(memory, dtype, count, offset).reshape(shape)

    def copies(self, arrays: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        """Copies of arrays at fences; they cannot be written."""
        copies = {name: self.empty(array.shape, array.dtype) for name, array in arrays.items()}
        for name, copy in copies.items():
            copy[...] = arrays[name]
            copy.flags.writeable = False
        return copies

    def open(self) -> None:
        """Let everybody touch the pages again, so that the memory can be given back."""
        for _, fence in self.held:
            _protect(fence, _BOTH)


@contextmanager
def fences(low: bool) -> Iterator[Fences]:
    """Fences; arrays that this thread makes meanwhile, as results are made, lie at them too."""
    held = Fences(low)
    _here.fences = held
    try:
        yield held
    finally:
        _here.fences = None
        held.open()


@contextmanager
def watched() -> Iterator[None]:
    """numpy.empty asks the fences of its thread, where there are any."""
    plain = numpy.empty

    def empty(shape: Sequence[int], dtype: Any = float, *rest: Any, **more: Any) -> numpy.ndarray:
        held = getattr(_here, "fences", None)
        return plain(shape, dtype, *rest, **more) if held is None else held.empty(shape, dtype)

    with mock.patch.object(numpy, "empty", empty):
        yield


def _protect(address: int, access: int) -> None:
    if _libc.mprotect(ctypes.c_void_p(address), _PAGE, access):
        raise OSError(ctypes.get_errno(), "mprotect")

"""Memory for the evaluator: by name, and by address, as host code sees it; all access checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy

from anydim.base.dtypes import DType, uint8
from anydim.base.errors import InternalError
from anydim.base.records import dataclass

_FIRST, _APART = 1 << 20, 4096  # addresses: of the first array, and between one and the next


@dataclass(frozen=True)
class Memory:
    """The bytes of a tensor, a stack array or scratch."""

    name: str
    data: numpy.ndarray
    writable: bool


@dataclass(frozen=True)
class Pointer:
    """A place in memory; `Address` counts in elements of `dtype`."""

    memory: Memory
    byte: int
    dtype: DType


@dataclass(frozen=True)
class Copy:
    """Bytes of elements on their way to places of a buffer, whose type they are of."""

    buffer: str
    places: numpy.ndarray
    dtype: DType
    held: numpy.ndarray


def undefined(name: str, size: int, dtype: DType = uint8) -> Pointer:
    """New memory of so many bytes."""
    return Pointer(Memory(name, numpy.full(size, 0xA5, numpy.uint8), True), 0, dtype)


class Space:
    """Arrays that lie at addresses, and functions that can be called through one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[numpy.ndarray] = []
        self._known: dict[int, int] = {}  # the memory of an array -> its address
        self._functions: dict[int, Callable[..., int | None]] = {}
        self._next = _FIRST

    def place(self, array: numpy.ndarray) -> int:
        """The address of a contiguous array, 64-byte aligned; equal memory has one address."""
        data = array.reshape(-1).view(numpy.uint8)
        if data.ctypes.data not in self._known or not len(data):
            self._known[data.ctypes.data] = self._next
            self._starts.append(self._next)
            self._parts.append(data)
            self._next += -(-len(data) // _APART) * _APART + _APART
        return self._known[data.ctypes.data]

    def function(self, made: Callable[..., int | None]) -> int:
        """The address of a function of int64s."""
        self._functions[self._next] = made
        self._next += _APART
        return self._next - _APART

    def called(self, address: int) -> Callable[..., int | None]:
        """The function at an address."""
        if address not in self._functions:
            raise InternalError(f"loop IR calls address {address}, where no function is")
        return self._functions[address]

    def bytes(self, address: int, count: int) -> numpy.ndarray:
        """Bytes to look at or to change; raises InternalError where nothing lies."""
        number = bisect_right(self._starts, address) - 1
        start = self._starts[number] if number >= 0 else 0
        at = address - start
        if number < 0 or at + count > len(self._parts[number]):
            raise InternalError(f"loop IR leaves its memory: {count} bytes at address {address}")
        return self._parts[number][at : at + count]

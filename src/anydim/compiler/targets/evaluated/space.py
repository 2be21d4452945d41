"""Memory of the interpreter: by name, and by address for host code; every access is checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy

from anydim.base.dtypes import DType, uint8
from anydim.base.errors import InternalError
from anydim.base.records import dataclass

_FIRST, _APART = 1 << 20, 4096  # address of the first array, and alignment of the next ones


@dataclass(frozen=True)
class Memory:
    """The bytes of a tensor, a stack array or scratch."""

    name: str
    data: numpy.ndarray
    writable: bool


@dataclass(frozen=True)
class Pointer:
    """A position in memory; `Address` counts in elements of `dtype`."""

    memory: Memory
    byte: int
    dtype: DType


@dataclass(frozen=True)
class Copy:
    """A pending async copy: bytes, and their destinations in a buffer of `dtype`."""

    buffer: str
    positions: numpy.ndarray
    dtype: DType
    held: numpy.ndarray


def uninitialised_memory(name: str, size: int, dtype: DType = uint8) -> Pointer:
    """Return uninitialised memory of `size` bytes."""
    return Pointer(Memory(name, numpy.full(size, 0xA5, numpy.uint8), True), 0, dtype)


class Space:
    """Arrays at virtual addresses, and functions that are callable by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[numpy.ndarray] = []
        self._known: dict[int, int] = {}  # real address of an array -> its virtual address
        self._functions: dict[int, Callable[..., int | None]] = {}
        self._next = _FIRST

    def address_of(self, array: numpy.ndarray) -> int:
        """Return the 64-byte aligned address of a contiguous array, one per memory."""
        data = array.reshape(-1).view(numpy.uint8)
        if data.ctypes.data not in self._known or not len(data):
            self._known[data.ctypes.data] = self._next
            self._starts.append(self._next)
            self._parts.append(data)
            self._next += -(-len(data) // _APART) * _APART + _APART
        return self._known[data.ctypes.data]

    def function(self, made: Callable[..., int | None]) -> int:
        """Return the address of a function of int64s."""
        self._functions[self._next] = made
        self._next += _APART
        return self._next - _APART

    def function_at(self, address: int) -> Callable[..., int | None]:
        """Return the function at an address."""
        if address not in self._functions:
            raise InternalError(f"loop IR calls address {address}, which is not a function")
        return self._functions[address]

    def bytes(self, address: int, count: int) -> numpy.ndarray:
        """Return the bytes at an address, writable; raises InternalError if they are not mapped."""
        number = bisect_right(self._starts, address) - 1
        start = self._starts[number] if number >= 0 else 0
        at = address - start
        if number < 0 or at + count > len(self._parts[number]):
            raise InternalError(f"loop IR accesses unmapped memory: {count} bytes at {address}")
        return self._parts[number][at : at + count]

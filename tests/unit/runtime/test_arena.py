"""Promise: an arena is as large as asked for, and keeps its pages when it grows and shrinks."""

from __future__ import annotations

import ctypes

import pytest

from anydim.runtime.arena import Arena


def fill(address: int, length: int, value: int) -> None:
    ctypes.memset(address, value, length)


def test_memory_is_usable_to_its_last_byte() -> None:
    arena = Arena()
    for size in (64, 4096, 4097, 1_000_000, 64, 2_000_000):
        address = arena.reserve(size)
        assert address % 64 == 0
        fill(address, size, 7)
        assert ctypes.string_at(address + size - 1, 1) == b"\7"


def test_nothing_needed_takes_nothing() -> None:
    arena = Arena()
    arena.reserve(0)
    assert arena.bytes == 0 and arena.highest == 0


def test_it_keeps_what_it_is_told() -> None:
    arena = Arena()
    fill(arena.reserve(10_000_000), 10_000_000, 7)
    arena.keep(20_000_000)
    assert arena.bytes == 10_000_000
    arena.keep(5_000_000)
    assert (arena.bytes, arena.needed, arena.highest) == (5_000_000, 10_000_000, 10_000_000)
    assert ctypes.string_at(arena.address + 4_999_999, 1) == b"\7"
    arena.keep(0)
    assert arena.bytes == 0
    fill(arena.reserve(500), 500, 1)


def test_too_much_is_a_memory_error_and_the_arena_goes_on() -> None:
    arena = Arena()
    arena.reserve(1000)
    with pytest.raises(MemoryError):
        arena.reserve(2**62)
    fill(arena.reserve(500), 500, 1)

"""Promise: an arena is as large as asked for, keeps its pages when it grows, and shrinks."""

from __future__ import annotations

import ctypes

import pytest

from anydim.runtime.arena import SHRINK_AFTER, Arena, Shelf


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


def test_it_shrinks_after_many_small_calls_in_a_row() -> None:
    arena = Arena()
    arena.reserve(10_000)
    for _ in range(SHRINK_AFTER - 1):
        arena.reserve(100)
    arena.reserve(6000)
    assert arena.bytes == 10_000
    for number in range(SHRINK_AFTER):
        arena.reserve(100 + 64 * (number == 3))
    assert arena.bytes == 164
    arena.reserve(0)
    assert (arena.bytes, arena.highest) == (164, 10_000)


def test_too_much_is_a_memory_error_and_the_arena_goes_on() -> None:
    arena = Arena()
    arena.reserve(1000)
    with pytest.raises(MemoryError):
        arena.reserve(2**62)
    fill(arena.reserve(500), 500, 1)


def test_a_shelf_gives_the_last_one_back_first() -> None:
    made = iter(range(100))
    shelf: Shelf[int] = Shelf(lambda: next(made))
    first, second = shelf.take(), shelf.take()
    shelf.give(first)
    shelf.give(second)
    assert shelf.take() == second
    assert shelf.free() == [first]


def test_a_shelf_forgets_a_burst() -> None:
    made = iter(range(100))
    shelf: Shelf[int] = Shelf(lambda: next(made))
    burst = [shelf.take() for _ in range(8)]
    for item in burst:
        shelf.give(item)
    for _ in range(2 * SHRINK_AFTER + 1):
        pair = shelf.take(), shelf.take()
        for item in pair:
            shelf.give(item)
    assert len(shelf.free()) == 2

"""Promise: an arena is as large as asked for, and keeps its pages when it grows and shrinks."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from anydim.runtime import arena
from anydim.runtime.arena import Arena


def fill(address: int, length: int, value: int) -> None:
    ctypes.memset(address, value, length)


def test_memory_is_usable_to_its_last_byte() -> None:
    made = Arena()
    for size in (64, 4096, 4097, 1_000_000, 64, 2_000_000):
        address = made.reserve(size)
        assert address % 64 == 0
        fill(address, size, 7)
        assert ctypes.string_at(address + size - 1, 1) == b"\7"


def test_nothing_needed_takes_nothing() -> None:
    made = Arena()
    made.reserve(0)
    assert made.bytes == 0 and made.highest == 0


def test_it_keeps_what_it_is_told() -> None:
    made = Arena()
    fill(made.reserve(10_000_000), 10_000_000, 7)
    made.keep(20_000_000)
    assert made.bytes == 10_000_000
    made.keep(5_000_000)
    assert (made.bytes, made.needed, made.highest) == (5_000_000, 10_000_000, 10_000_000)
    assert ctypes.string_at(made.address + 4_999_999, 1) == b"\7"
    made.keep(0)
    assert made.bytes == 0
    fill(made.reserve(500), 500, 1)


def test_too_much_is_a_memory_error_and_the_arena_goes_on() -> None:
    made = Arena()
    made.reserve(1000)
    with pytest.raises(MemoryError):
        made.reserve(2**62)
    fill(made.reserve(500), 500, 1)


@pytest.mark.parametrize("name", ["_remap", "_populate", "_address"])
@pytest.mark.parametrize("size", [1 << 12, 1 << 24], ids=["less", "more"])
def test_an_exception_of_a_signal_leaves_no_address_of_a_mapping_that_has_moved(
    monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    made = Arena()
    made.reserve(1 << 20)
    step = getattr(arena, name)

    def interrupted(*given: Any) -> Any:
        step(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(arena, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.keep(size) if size < made.bytes else made.reserve(size)
    monkeypatch.undo()
    fill(made.reserve(1 << 20), 1 << 20, 7)
    made.keep(0)
    assert made.bytes == made.address == 0

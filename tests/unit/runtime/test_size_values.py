"""Promise: of values of sizes alone those stay that were used last, within a number of bytes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anydim.runtime.size_values import Block, SizeValues


def filled(values: SizeValues, *keys: int, bytes: int = 64) -> None:
    for key in keys:
        values.put(Block((key,), bytes))


def fill_three(values: SizeValues) -> None:
    filled(values, 3)


def forget(values: SizeValues) -> None:
    values.clear()


def kept(values: SizeValues) -> set[int]:
    return {key for (key,) in values._blocks}


@pytest.mark.parametrize("bytes", [0, 1, 64, 100_000])
def test_blocks_are_aligned(bytes: int) -> None:
    block = Block((1,), bytes)
    start, stop = block.address, block.address + bytes
    inside = block.memory.ctypes.data
    assert start % 64 == 0 and inside <= start and stop <= inside + block.memory.size


def test_the_ones_used_last_stay() -> None:
    values = SizeValues(1 << 20, most=8)
    filled(values, *range(8))
    assert kept(values) == set(range(8)) and values.bytes == 8 * 64
    assert values.find((0,)) is not None and values.find((2,)) is not None
    assert values.find((9,)) is None
    filled(values, 8)  # one in eight more than has to be
    assert kept(values) == {0, 2, 4, 5, 6, 7, 8} and values.bytes == 7 * 64


def test_bytes_are_limited() -> None:
    values = SizeValues(1000)
    for key in range(20):
        filled(values, key, bytes=300)
        assert values.bytes <= 1000 and key in kept(values)
    filled(values, 99, bytes=1001)
    assert 99 not in kept(values) and values.find((99,)) is None


def test_the_first_of_two_equal_blocks_is_kept() -> None:
    values = SizeValues(1000)
    first, second = Block((1,), 64), Block((1,), 64)
    values.put(first)
    values.put(second)
    assert values.find((1,)) is first and values.bytes == 64
    assert second.dropped and not first.dropped


def test_room_is_made_beside_what_a_call_needs() -> None:
    told: list[int] = []
    values = SizeValues(10_000, changed=told.append)
    filled(values, *range(10))
    assert values.make_room(3 * 64, ((0,), (1,)))
    assert kept(values) == {0, 1, 7, 8, 9} and told[-1] == values.bytes == 5 * 64
    assert not values.make_room(3 * 64, ((0,), (1,)))
    assert values.make_room(-5, ((0,),)) and kept(values) == {0}
    assert values.clear() == 64 and told[-1] == values.bytes == 0 and not len(values)


def test_threads_leave_the_bytes_right() -> None:
    values = SizeValues(50 * 64, most=40)

    def work(seed: int) -> None:
        for number in range(2000):
            key = (number * (seed + 1)) % 97
            if values.find((key,)) is None:
                values.put(Block((key,), 64))
            if number % 500 == 499:
                values.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert values.bytes == 64 * len(values) <= 40 * 64


class Interrupted(BaseException):
    """What a signal's handler raises."""


class Fragile(Block):
    """One that a signal's handler interrupts as its bytes are counted, once."""

    __slots__ = ("act", "asked")
    act: Callable[[], None]
    asked: int

    def __getattribute__(self, name: str) -> Any:
        if name == "bytes":
            self.asked -= 1
            if self.asked == 0:
                self.act()
        return super().__getattribute__(name)


def fragile(key: int, asked: int, act: Callable[[], None]) -> Fragile:
    block = Fragile((key,), 64)
    block.asked, block.act = asked, act
    return block


def test_a_change_that_was_interrupted_is_counted() -> None:
    def interrupt() -> None:
        raise Interrupted

    values = SizeValues(1 << 20)
    filled(values, 1)
    block = fragile(2, 2, interrupt)
    with pytest.raises(Interrupted):
        values.put(block)
    filled(values, 3)
    assert values.bytes == 64 * len(values) == 3 * 64
    values.put(block)  # by the call that goes on
    assert values.bytes == 64 * len(values) == 3 * 64 and not block.dropped
    assert values.clear() == 3 * 64 and values.bytes == 0


@pytest.mark.parametrize("other", [fill_three, forget])
def test_a_signal_handler_may_call_the_model_in_a_change(
    other: Callable[[SizeValues], None],
) -> None:
    values = SizeValues(1 << 20)
    filled(values, 1)
    block = fragile(2, 2, lambda: other(values))
    caller = threading.Thread(target=values.put, args=(block,), daemon=True)
    caller.start()
    caller.join(20)
    assert not caller.is_alive(), "it waits for its own lock"
    assert values.bytes == 64 * len(values)
    assert block.dropped == (2 not in kept(values))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_has_a_lock_of_its_own() -> None:
    values = SizeValues(1 << 20)
    filled(values, 1, 2)
    with values._lock():  # as another thread may have it
        child = os.fork()
        if not child:
            values.bytes = 7  # half changed
            filled(values, 3)
            os._exit(0 if values.bytes == 3 * 64 and kept(values) == {1, 2, 3} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

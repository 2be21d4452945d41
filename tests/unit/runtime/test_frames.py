"""Promise: what calls keep follows use, and no more calls run at once than there are arenas."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from anydim.base.errors import BusyError, OptionError
from anydim.runtime.frames import CALLS, SMALL, Callers, LimitedShelf, Shelf

MIB = 1 << 20


class Held:
    """A frame that only counts: bytes that it has, and those that it took from the system."""

    def __init__(self) -> None:
        self.bytes = self.needed = self.taken = 0

    def reserve(self, needed: int) -> None:
        self.taken += max(0, needed - self.bytes)
        self.bytes = max(self.bytes, needed)
        self.needed = needed

    def keep(self, most: int) -> None:
        self.bytes = min(self.bytes, most)


def call(shelf: Shelf[Held], needed: int) -> Held:
    frame = shelf.take()
    frame.reserve(needed)
    shelf.give(frame)
    return frame


@pytest.mark.parametrize("before", [0, 1, CALLS - 1, CALLS])
def test_what_a_large_call_took_is_back_within_two_windows(before: int) -> None:
    shelf = Shelf(Held)
    for _ in range(before):
        call(shelf, 3 * MIB)
    frame = call(shelf, 100 * MIB)
    for _ in range(CALLS - 1):
        call(shelf, 3 * MIB)
    assert frame.bytes == 100 * MIB, "not given back too soon"
    for _ in range(CALLS + 1):
        call(shelf, 3 * MIB)
    assert frame.bytes == 3 * MIB


@pytest.mark.parametrize("period", [2, 7, CALLS])
def test_large_and_small_calls_in_turns_take_no_memory_anew(period: int) -> None:
    shelf = Shelf(Held)
    for number in range(10 * CALLS):
        frame = call(shelf, 100 * MIB if number % period == 0 else MIB)
    assert frame.taken == 100 * MIB


def test_random_sizes_take_little_anew() -> None:
    """In 100 times `CALLS` calls less than 20 times what one of them needs at most."""
    shelf, random = Shelf(Held), Random(1)
    for _ in range(100 * CALLS):
        frame = call(shelf, random.randrange(100 * MIB))
    assert 100 * MIB * 0.9 < frame.taken < 20 * 100 * MIB


def test_a_little_less_is_not_worth_it() -> None:
    shelf = Shelf(Held)
    for large, small in [(SMALL, 1), (100 * MIB, 96 * MIB)]:
        frame = call(shelf, large)
        for _ in range(3 * CALLS):
            call(shelf, small)
        assert frame.bytes == large
        shelf.trim()


def test_trimming_leaves_nothing_idle() -> None:
    shelf = Shelf(Held)
    busy = shelf.take()
    busy.reserve(7 * MIB)
    idle = shelf.take()
    idle.reserve(5 * MIB)
    shelf.give(idle)
    assert shelf.trim() == 5 * MIB and idle.bytes == 0
    assert shelf.trim() == 0
    shelf.give(busy)
    assert busy.bytes == 7 * MIB, "it was in use"
    call(shelf, MIB)
    assert sorted(frame.bytes for frame in shelf.free()) == [0, 7 * MIB]


def test_the_last_one_given_back_is_taken_first() -> None:
    shelf = Shelf(Held)
    first, second = shelf.take(), shelf.take()
    shelf.give(first)
    shelf.give(second)
    assert shelf.take() is second
    assert shelf.free() == [first]


def test_a_burst_is_forgotten() -> None:
    shelf = Shelf(Held)
    for item in [shelf.take() for _ in range(8)]:
        shelf.give(item)
    for _ in range(CALLS):
        pair = shelf.take(), shelf.take()
        for item in pair:
            shelf.give(item)
    assert len(shelf.free()) == 2


def test_frames_below_are_made_smaller_too() -> None:
    shelf = Shelf(Held)
    burst = [shelf.take() for _ in range(3)]
    for item in burst:
        item.reserve(50 * MIB)
        shelf.give(item)
    late = shelf.take()
    for _ in range(CALLS):
        pair = [shelf.take() for _ in range(2)]
        for item in pair:
            item.reserve(MIB)
            shelf.give(item)
    assert all(frame.bytes == MIB for frame in shelf.free())
    shelf.give(late)
    assert late.bytes == MIB, "it was in use when the others were made smaller"


# ---- a limit to calls at once --------------------------------------------------------------------


def test_nobody_waits_where_nobody_may() -> None:
    shelf = LimitedShelf(Held, 2, 0, "tiny")
    first, second = shelf.take(), shelf.take()
    with pytest.raises(BusyError, match="2 calls in progress, the limit of arenas"):
        shelf.take()
    shelf.give(first)
    assert shelf.take() is first
    shelf.give(second)


def test_an_error_after_the_time_to_wait() -> None:
    shelf = LimitedShelf(Held, 1, 0.05, "tiny")
    frame = shelf.take()
    start = time.monotonic()
    with pytest.raises(BusyError, match=r"1 call in progress.*after waiting 0.05 s"):
        shelf.take()
    assert time.monotonic() - start >= 0.05
    shelf.give(frame)
    assert shelf.take() is frame


def test_a_frame_that_a_signal_takes_away_leaves_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = LimitedShelf(Held, 1, 0, "tiny")
    held = shelf.take()

    def interrupted(most: int) -> None:
        raise KeyboardInterrupt

    held.bytes = 1 << 30  # more than it may keep
    monkeypatch.setattr(held, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shelf.give(held)
    assert shelf.take() is not held


def test_no_call_is_refused_for_a_frame_that_is_looked_at() -> None:
    shelf = LimitedShelf(Held, 1, 0, "tiny")
    frame = call(shelf, MIB)
    begun, end = threading.Event(), threading.Event()

    def look(each: Held) -> None:
        begun.set()
        end.wait(20)

    visitor = threading.Thread(target=shelf.visit, args=(look,))
    visitor.start()
    begun.wait(20)
    threading.Timer(0.05, end.set).start()
    assert shelf.take() is frame
    with pytest.raises(BusyError):
        shelf.take()
    visitor.join()
    shelf.give(frame)


def test_a_signal_handler_that_calls_while_its_thread_looks_at_a_frame_does_not_wait() -> None:
    shelf = LimitedShelf(Held, 1, 0, "tiny")
    call(shelf, MIB)
    refused = []

    def look(each: Held) -> None:
        with pytest.raises(BusyError):
            shelf.take()
        refused.append(each)

    shelf.visit(look)
    assert refused == [call(shelf, MIB)]


@pytest.mark.parametrize("shelf", [Shelf(Held), LimitedShelf(Held, 1, 0, "tiny")])
def test_a_frame_is_back_where_a_signal_interrupts_who_looks_at_it(shelf: Shelf[Held]) -> None:
    frame = call(shelf, MIB)

    def look(each: Held) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.visit(look)
    assert call(shelf, MIB) is frame


def test_sixteen_threads_with_three_arenas() -> None:
    made: list[Held] = []
    running, most = 0, 0
    lock = threading.Lock()

    def make() -> Held:
        made.append(Held())
        return made[-1]

    shelf = LimitedShelf(make, 3, None, "tiny")

    def work(number: int) -> None:
        nonlocal running, most
        frame = shelf.take()
        with lock:
            running += 1
            most = max(most, running)
        frame.reserve(number % 7 * MIB)
        if number % 50 == 0:
            shelf.trim()
        with lock:
            running -= 1
        shelf.give(frame)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(2000)))
    assert most <= 3 and len(made) <= 3 + 2000 // (2 * CALLS)
    assert len(shelf.free()) <= 3


@pytest.fixture
def fork() -> Iterator[None]:
    if not hasattr(os, "fork") or sys.platform == "darwin":
        pytest.skip("no fork here")
    yield


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_does_not_wait_for_calls_of_its_parent(fork: None) -> None:
    shelf = LimitedShelf(Held, 1, 0, "tiny")
    frame = shelf.take()
    child = os.fork()
    if child == 0:
        try:
            shelf.give(shelf.take())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    shelf.give(frame)


@pytest.mark.parametrize(
    "arenas, wait, text",
    [
        (0, None, "arenas is 0"), (True, None, "arenas is True"), (1.5, None, "arenas is 1.5"),
        (1, -1, "wait is -1"), (1, "2", "wait is '2'"), (1, float("nan"), "wait is nan"),
        (None, 1, "no effect without a limit of arenas"),
    ],
)  # fmt: skip
def test_what_is_no_limit(arenas: int | None, wait: float | None, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Callers(arenas, wait)

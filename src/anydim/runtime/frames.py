"""Memory of calls: one frame per call in progress, cached between calls.

This module alone decides how much memory is cached. Every `CALLS` calls it reviews the last ones:

- an idle frame keeps at most the maximum number of bytes that one of them needed,
- the number of idle frames is at most the maximum number of concurrent calls;

the rest is returned to the system. The memory of one large call is thus freed after at most
`2 * CALLS` calls, and memory that is needed once in `CALLS` calls stays cached: alternating large
and small calls allocate nothing. Savings below a sixteenth, or below `SMALL` bytes, are ignored,
since the pages would have to be faulted in again. `trim` frees all idle memory at once.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import numpy

from anydim.base.errors import BusyError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.base.user_values import seconds_of, short_repr
from anydim.runtime.system_functions import c_library

CALLS = 32
SMALL = 256 << 10  # bytes
_MOMENT = 1e-3  # seconds
_KEPT = 31 << 20  # bytes, below the largest threshold of glibc (DEFAULT_MMAP_THRESHOLD_MAX)
IDLE = 1 << 62  # the epoch of an idle frame


class Frame(Protocol):
    """The memory of a call in progress, or cached for the next one."""

    needed: int  # bytes that the current call needs
    since: int  # epoch of the code when the current call began
    shapes: Any  # those of the last repeated call

    @property
    def bytes(self) -> int:
        """Cached bytes."""

    def keep(self, most: int) -> None:
        """Return all but `most` bytes to the system."""


Item = TypeVar("Item", bound=Frame)


class Shelf(Generic[Item]):
    """A LIFO pool of frames for concurrent calls; grows on demand.

    It has no lock that a fork could leave locked: list operations are atomic, and counts may be
    inexact.
    """

    def __init__(self, make: Callable[[], Item]) -> None:
        self._make = make
        self._free: list[Item] = []
        self._calls = 0  # since the last review
        self._most = 0  # maximum bytes that one of them needed
        self._idle = 0  # frames that none of them used
        self._keep = 0  # bytes that an idle frame may keep

    def take(self) -> Item:
        """Return a free or new frame; raises BusyError if the number of frames is limited."""
        free = self._free
        try:
            item = free.pop()
        except IndexError:
            item = self._make()
        if len(free) < self._idle:
            self._idle = len(free)
        return item

    def give(self, item: Item) -> None:
        """Return a frame to the pool after a call."""
        needed, item.needed = item.needed, 0
        if needed > self._most:
            self._most = needed
            self._keep = max(self._keep, needed)
        self._calls += 1
        if self._calls >= CALLS:
            self._look_back()
        if item.bytes > self._keep:
            item.keep(self._keep)
        self._free.append(item)

    def renew(self) -> Shelf[Item]:
        """An empty pool under the same limit; frames in use return to this one."""
        made = copy(self)
        made._free = []
        made._calls = made._most = made._idle = made._keep = 0
        return made

    def free(self) -> list[Item]:
        """A snapshot of the idle frames."""
        return list(self._free)

    def visit(self, look: Callable[[Item], None]) -> None:
        """Call `look` for each idle frame, which no call can use meanwhile."""
        for _ in range(len(self._free)):
            item = self._borrow()
            if item is None:  # other threads were faster
                break
            try:
                look(item)
            finally:  # a signal's handler may raise meanwhile
                self._return(item)

    def trim(self) -> int:
        """Free the memory of idle frames; return the number of bytes."""
        self._keep = self._most = 0
        return self._keep_at_most(0)

    def _look_back(self) -> None:
        most, idle = self._most, self._idle
        self._calls = self._most = 0
        del self._free[:idle]
        self._idle = len(self._free)
        if self._keep - most >= max(SMALL, self._keep // 16):
            self._keep = most
            self._keep_at_most(most)

    def _keep_at_most(self, most: int) -> int:
        """Shrink idle frames to `most` bytes; return the number of freed bytes."""
        given = 0

        def look(item: Item) -> None:
            nonlocal given
            given += item.bytes
            if item.bytes > most:
                item.keep(most)
            given -= item.bytes

        self.visit(look)
        return given

    def _borrow(self) -> Item | None:
        """Remove an idle frame from the pool, if there is one."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _return(self, item: Item) -> None:
        """Insert at the bottom, so that `visit` reaches all frames."""
        self._free.insert(0, item)


# ---- a limit to calls at once ------------------------------------------------------------------


@dataclass(frozen=True)
class Callers:
    """The maximum number of concurrent calls, each with an arena, and the wait for one.

    `arenas` None: unlimited. `wait` in seconds; None: unlimited, 0: no waiting.
    """

    arenas: int | None = None
    wait: float | None = None

    def __post_init__(self) -> None:
        """Raises OptionError for invalid numbers of arenas or seconds."""
        arenas, wait = self.arenas, self.wait
        whole = isinstance(arenas, int) and not isinstance(arenas, bool) and arenas > 0
        if arenas is not None and not whole:
            hint = "give the maximum number of concurrent calls, 1 or more, or None for no limit"
            raise OptionError(f"arenas is {short_repr(arenas)}", hint)
        if wait is None:
            return
        seconds_of("wait", wait)
        if arenas is None:
            hint = "limit the number of arenas: arenas=8"
            raise OptionError("wait has no effect without a limit of arenas", hint)


class LimitedShelf(Shelf[Item]):
    """A pool with at most `arenas` frames; further calls wait. `name` is the model's, for errors.

    After a fork, all frames of the child are free: calls of the parent's other threads do not
    continue in it.
    """

    def __init__(self, make: Callable[[], Item], arenas: int, wait: float | None, name: str):
        super().__init__(make)
        self._arenas, self._wait, self._name = arenas, wait, name
        self._gates: dict[int, threading.Semaphore] = {}
        self._visits: list[tuple[int, int]] = []  # process and thread of each visitor of a frame

    def take(self) -> Item:
        if not self._acquire():
            running = count_of(self._arenas, "call")
            waited = f" after waiting {self._wait:g} s" if self._wait else ""
            raise BusyError(
                f"{self._name}: {running} in progress, the limit of arenas{waited}",
                "call again later, or raise arenas=... or wait=...",
            )
        try:
            return super().take()
        except BaseException:
            self._gate().release()
            raise

    def give(self, item: Item) -> None:
        try:
            super().give(item)
        finally:  # a signal's handler may raise while memory goes back to the system
            self._gate().release()

    def _acquire(self) -> bool:
        """Wait for a frame; frames that are being visited become free within a moment."""
        gate = self._gate()
        if gate.acquire(timeout=self._wait):
            return True
        while True:
            visited = self._is_visited()
            if gate.acquire(timeout=_MOMENT if visited else 0):
                return True
            if not visited and not self._is_visited():
                return False

    def _is_visited(self) -> bool:
        """Whether another thread visits a frame; this thread may, if a signal handler calls."""
        process, thread = _here()
        return any(p == process and t != thread for p, t in list(self._visits))

    def _borrow(self) -> Item | None:
        self._visits.append(_here())
        item = None
        if self._gate().acquire(blocking=False):
            item = super()._borrow()
            if item is None:
                self._gate().release()
        if item is None:
            self._visits.remove(_here())
        return item

    def _return(self, item: Item) -> None:
        super()._return(item)
        self._gate().release()
        self._visits.remove(_here())

    def _gate(self) -> threading.Semaphore:
        """The semaphore of this process; setdefault is atomic."""
        process = os.getpid()
        gate = self._gates.get(process)
        return gate or self._gates.setdefault(process, threading.Semaphore(self._arenas))


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def shelf_of(make: Callable[[], Item], callers: Callers, name: str) -> Shelf[Item]:
    """Return a pool for the given limit of concurrent calls."""
    if callers.arenas is None:
        return Shelf(make)
    return LimitedShelf(make, callers.arenas, callers.wait, name)


# ---- memory cached by the C library --------------------------------------------------------------


def keep_freed_blocks() -> None:
    """Have glibc keep what a step frees for the next one: it maps no blocks that are smaller than
    the largest one that was freed, and returns no less. Takes no memory."""
    numpy.empty(_KEPT, numpy.uint8)


def trim_system() -> None:
    """Have the C library return freed memory to the system, also of numpy; takes milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim, if available."""
    found = getattr(c_library(), "malloc_trim", None)
    if found is not None:
        found.argtypes, found.restype = (ctypes.c_size_t,), ctypes.c_int
    return found

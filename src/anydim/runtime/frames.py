"""Memory of calls: a frame for each call in progress, kept for the next ones while it is used.

This is the one place that decides how much is kept. Every `CALLS` calls it looks back at them:

- an idle frame keeps no more bytes than one of those calls needed at most,
- and there are no more idle frames than calls ran at once at most;

the rest goes back to the system. So what one large call took is back at the latest `2 * CALLS`
calls later, and what is needed once in `CALLS` calls is always there: a stream of large and small
calls in turns takes no memory anew. Less than a sixteenth, or `SMALL` bytes, is not worth the
pages that would have to be taken again. `trim` gives back everything that is idle, at once.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from anydim.base.errors import BusyError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import counted
from anydim.base.user_values import shown

CALLS = 32
SMALL = 256 << 10  # bytes
_MOMENT = 1e-3  # seconds
IDLE = 1 << 62  # the epoch of a frame that no call has


class Frame(Protocol):
    """The memory of one call in progress, or kept for the next one."""

    needed: int  # bytes, by the call that has it
    since: int  # the epoch of code in which that call began
    shapes: Any  # the sizes that it is bound to

    @property
    def bytes(self) -> int:
        """What it keeps for the next call."""

    def keep(self, most: int) -> None:
        """Give back to the system what is more than so many bytes."""


Item = TypeVar("Item", bound=Frame)


class Shelf(Generic[Item]):
    """Frames that concurrent calls take and give back; made when none is free.

    The last one given back is taken first. There is no lock that a fork could leave taken: single
    list operations are atomic, and counts need not be exact.
    """

    def __init__(self, make: Callable[[], Item]) -> None:
        self._make = make
        self._free: list[Item] = []
        self._calls = 0  # since what is kept was last decided
        self._most = 0  # bytes that one of them needed
        self._idle = 0  # frames that none of them took
        self._keep = 0  # bytes that an idle frame may keep

    def take(self) -> Item:
        """A free frame, or a new one. Raises BusyError where there is a limit."""
        free = self._free
        try:
            item = free.pop()
        except IndexError:
            item = self._make()
        if len(free) < self._idle:
            self._idle = len(free)
        return item

    def give(self, item: Item) -> None:
        """Back on the shelf, after a call."""
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

    def free(self) -> list[Item]:
        """What lies there now."""
        return list(self._free)

    def visit(self, look: Callable[[Item], None]) -> None:
        """Look at the idle frames, none of which a call can take meanwhile."""
        for _ in range(len(self._free)):
            item = self._borrow()
            if item is None:  # other threads were faster
                break
            try:
                look(item)
            finally:  # a signal's handler may raise meanwhile
                self._return(item)

    def trim(self) -> int:
        """Idle frames keep nothing; the bytes that they had."""
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
        """Have idle frames keep so many bytes; how many went back to the system."""
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
        """An idle frame, if there is one: no call can take it now."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _return(self, item: Item) -> None:
        """Below the others, so that all of them come up in turn."""
        self._free.insert(0, item)


# ---- a limit to calls at once ------------------------------------------------------------------


@dataclass(frozen=True)
class Callers:
    """How many calls may run at once, each with an arena, and how long others wait for one.

    `arenas` None: any number. `wait` in seconds; None: without end, 0: not at all.
    """

    arenas: int | None = None
    wait: float | None = None

    def __post_init__(self) -> None:
        """Raises OptionError for what is no number of arenas or seconds."""
        arenas, wait = self.arenas, self.wait
        whole = isinstance(arenas, int) and not isinstance(arenas, bool) and arenas > 0
        if arenas is not None and not whole:
            hint = "give how many calls may run at once, 1 or more, or None for any number"
            raise OptionError(f"arenas is {shown(arenas)}", hint)
        if wait is None:
            return
        number = isinstance(wait, (int, float)) and not isinstance(wait, bool)
        if not number or not 0 <= wait <= threading.TIMEOUT_MAX:
            raise OptionError(f"wait is {shown(wait)}", "give seconds, or None to wait without end")
        if arenas is None:
            hint = "say how many there are: arenas=8"
            raise OptionError("wait is given, but calls never wait for an arena", hint)


class LimitedShelf(Shelf[Item]):
    """One with so many frames at most; who finds none waits. `name` is the model's, for errors.

    A child of a fork begins with all frames free: calls that other threads of its parent had in
    progress do not go on in it.
    """

    def __init__(self, make: Callable[[], Item], arenas: int, wait: float | None, name: str):
        super().__init__(make)
        self._arenas, self._wait, self._name = arenas, wait, name
        self._gates: dict[int, threading.Semaphore] = {}
        self._visits: list[
            tuple[int, int]
        ] = []  # process and thread of those that have a frame now

    def take(self) -> Item:
        if not self._acquired():
            at_once = counted(self._arenas, "call")
            waited = f", waited {self._wait:g} s for one to end" if self._wait else ""
            raise BusyError(
                f"{self._name}: {at_once} run already, as many as there are arenas{waited}",
                "call again later, or allow more: arenas=..., or a longer wait=...",
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

    def _acquired(self) -> bool:
        """Whether there is a frame for a call. One that is looked at is free in a moment."""
        gate = self._gate()
        if gate.acquire(timeout=self._wait):
            return True
        while True:
            visited = self._visited()
            if gate.acquire(timeout=_MOMENT if visited else 0):
                return True
            if not visited and not self._visited():
                return False

    def _visited(self) -> bool:
        """Whether another thread looks at a frame; this one does where a signal's handler calls."""
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
        """That of this process; setdefault is atomic."""
        process = os.getpid()
        gate = self._gates.get(process)
        return gate or self._gates.setdefault(process, threading.Semaphore(self._arenas))


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def shelf_of(make: Callable[[], Item], callers: Callers, name: str) -> Shelf[Item]:
    """A shelf for so many callers."""
    if callers.arenas is None:
        return Shelf(make)
    return LimitedShelf(make, callers.arenas, callers.wait, name)


# ---- what the C library keeps --------------------------------------------------------------------


def trim_system() -> None:
    """Have the C library give back what was freed: of numpy's arrays, too. Milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """That of glibc; others have none, or need none."""
    system = ctypes.CDLL(None) if os.name == "posix" else None
    found = getattr(system, "malloc_trim", None)
    if found is not None:
        found.argtypes, found.restype = (ctypes.c_size_t,), ctypes.c_int
    return found

"""Interruption of calls: by a time limit, a signal such as Ctrl-C, or another thread.

Native code reads the clock and lets Python run signal handlers between iterations and launches
(`native/stopping.py`); an exception from a handler is returned in three slots. Another thread ends
calls through a `Stop`, which expires their time limit.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol

from anydim.base.fork_locks import fork_lock
from anydim.base.user_values import ABOVE_ZERO, number_within
from anydim.runtime import context

FAILURES = ("time", "loop", "interrupted")  # failure kinds of interruptible calls
_MOST_SECONDS = 1e9
_LATE = 0.02  # maximum lag of the coarse clock in seconds
_PYTHON = (
    "PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Occurred", "PyErr_Fetch",
    "PyGILState_Release", "PyThread_get_thread_ident",
)  # fmt: skip
_PAST = 1  # a deadline in the past, in nanoseconds
_main = ctypes.c_int64()  # id of the main thread, which alone runs signal handlers


def _set_main() -> None:
    _main.value = threading.main_thread().ident or 0


_set_main()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_set_main)


def known_timeout(seconds: Any) -> float | None:
    """Return a time limit in seconds; raises OptionError for an invalid one."""
    if seconds is None:
        return None
    return number_within("timeout", seconds, ABOVE_ZERO, _MOST_SECONDS,
                         "give seconds above 0, or None for no limit")  # fmt: skip


def prepare(block: Any) -> None:
    """Fill the constant slots of a new call's memory."""
    block[context.CLOCK : context.THREAD + 1] = _functions()
    block[context.CLOCK_NUMBER : context.MAIN] = _clocks()
    block[context.MAIN] = ctypes.addressof(_main)


def deadline(timeout: float) -> int:
    """Return the deadline of a call that begins now, in nanoseconds; 0 without a clock."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) if _functions()[0] else 0
    return now and now + int(timeout * 1e9)


class Ends(Protocol):
    """A call in progress."""

    def set_deadline(self, deadline: int) -> None:
        """Set its deadline in nanoseconds; 0: none."""


class Stop:
    """Ends calls: registered ones in progress, and later ones until it is cleared."""

    seconds = math.inf  # time limit of each call

    def __init__(self) -> None:
        self.requested = False
        self._calls: list[Ends] = []
        self._lock = fork_lock(self, "_lock")

    def request(self) -> None:
        """End the calls; thread-safe."""
        with self._lock:
            self.requested = True
            for call in self._calls:
                call.set_deadline(_PAST)

    def clear(self) -> None:
        """Let later calls run."""
        with self._lock:
            self.requested = False

    def add(self, call: Ends) -> None:
        """Register a call; it ends on a request, or now after one."""
        with self._lock:
            self._calls.append(call)
            if self.requested:
                call.set_deadline(_PAST)

    def remove(self, call: Ends) -> None:
        """Unregister a call."""
        with self._lock:
            self._calls = [each for each in self._calls if each is not call]

    @contextmanager
    def ends(self) -> Iterator[None]:
        """A context in which this object ends the calls of the current thread."""
        token = STOP.set(self)
        try:
            yield
        finally:
            STOP.reset(token)


class Limit(Stop):
    """Ends each call after some seconds, or earlier if an outer limit or stop does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._outer = STOP.get()
        self.seconds = seconds if self._outer is None else min(seconds, self._outer.seconds)

    def add(self, call: Ends) -> None:
        if self._outer is not None:
            self._outer.add(call)

    def remove(self, call: Ends) -> None:
        if self._outer is not None:
            self._outer.remove(call)


STOP: ContextVar[Stop | None] = ContextVar(
    "anydim_stop", default=None
)  # that ends calls in this context


def begin(call: Ends, timeout: float | None, stop: Stop | None) -> None:
    """Register a call with its time limit and `stop`."""
    seconds = math.inf if timeout is None else timeout
    if stop is not None:
        seconds = min(seconds, stop.seconds)
    call.set_deadline(deadline(seconds) if seconds < math.inf else 0)
    if stop is not None:
        stop.add(call)


def end_call(call: Ends, stop: Stop | None) -> None:
    """Unregister a call."""
    if stop is not None:
        stop.remove(call)
    call.set_deadline(0)


def raise_kept(block: Any) -> None:
    """Raise the exception of a signal handler during the call, if any."""
    kept = block[context.RAISED : context.RAISED + 3]
    if kept[0]:
        block[context.RAISED : context.RAISED + 3] = (0, 0, 0)
        restore = ctypes.pythonapi.PyErr_Restore
        restore.argtypes, restore.restype = (ctypes.c_void_p,) * 3, None
        restore(*kept)


@cache
def _clocks() -> tuple[int, int]:
    """Return the ids of an exact system clock and of a faster one.

    Linux has a coarse clock that lags by a tick; if it is as exact as the other, it is no faster.
    """
    exact, coarse = getattr(time, "CLOCK_MONOTONIC", 0), 6
    if sys.platform != "linux":
        return exact, exact
    late = time.clock_getres(coarse)
    return exact, coarse if time.clock_getres(exact) < late <= _LATE else exact


@cache
def _functions() -> list[int]:
    """Return the addresses of the system clock and of Python's signal functions; 0 for missing
    ones."""
    system = ctypes.CDLL(None) if hasattr(time, "CLOCK_MONOTONIC") else None
    clock = getattr(system, "clock_gettime", None)
    found = [clock, *(getattr(ctypes.pythonapi, name, None) for name in _PYTHON)]
    if None in found[1:]:
        found[1:] = [None] * len(_PYTHON)
    return [0 if each is None else ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found]

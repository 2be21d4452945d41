"""What ends a loop before it ends itself: a time limit, or a signal such as Ctrl-C.

Native code looks at the clock and lets Python run the handlers of its signals between iterations
(`native/stopping.py`); an exception that a handler raises comes back in three words.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
import time
from functools import cache
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.given import shown
from anydim.runtime import context
from anydim.sizes import LARGEST

FAILURES = ("time", "interrupted")  # of loops that may be stopped
_NEVER = 1 << 62
_MOST_SECONDS = 1e9
_WORDS = struct.Struct("6q")  # from COUNTDOWN to LISTENED
_PYTHON = (
    "PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Occurred", "PyErr_Fetch",
    "PyGILState_Release",
)  # fmt: skip


def known_timeout(seconds: Any) -> float | None:
    """Seconds that a call may take; raises OptionError for what is no such number."""
    if seconds is None:
        return None
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if number and math.isfinite(min(seconds, LARGEST)) and 0 < seconds <= _MOST_SECONDS:
        return float(seconds)
    raise OptionError(f"timeout is {shown(seconds)}", "give seconds above 0, or None for no limit")


def prepare(block: Any) -> None:
    """Fill the words of a new call's memory that never change."""
    functions = _functions()
    block[context.CLOCK : context.GIVE_LOCK + 1] = functions
    block[context.CLOCK_NUMBER] = getattr(time, "CLOCK_MONOTONIC", 0)


def begin(block: Any, timeout: float | None) -> None:
    """Before a call: nothing was looked at yet."""
    deadline = 0 if timeout is None else _now() + int(timeout * 1e9)
    has_clock, listens = _has()
    here = threading.get_ident() == threading.main_thread().ident  # handlers run nowhere else
    first = 1 if has_clock else _NEVER
    _WORDS.pack_into(block, 8 * context.COUNTDOWN, first, 1, 0, deadline, listens and here, 0)


def raise_kept(block: Any) -> None:
    """Raise the exception that a handler of a signal has raised during the call, if any."""
    kept = block[context.RAISED : context.RAISED + 3]
    if kept[0]:
        block[context.RAISED : context.RAISED + 3] = (0, 0, 0)
        restore = ctypes.pythonapi.PyErr_Restore
        restore.argtypes, restore.restype = (ctypes.c_void_p,) * 3, None
        restore(*kept)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) if _functions()[0] else 0


@cache
def _has() -> tuple[bool, bool]:
    """Whether there is a clock, and Python's functions for signals."""
    return _functions()[0] != 0, _functions()[1] != 0


@cache
def _functions() -> list[int]:
    """Addresses of the system's clock and of what Python has for signals; 0 for what is missing."""
    system = ctypes.CDLL(None) if hasattr(time, "CLOCK_MONOTONIC") else None
    clock = getattr(system, "clock_gettime", None)
    found = [clock, *(getattr(ctypes.pythonapi, name, None) for name in _PYTHON)]
    if None in found[1:]:
        found[1:] = [None] * len(_PYTHON)
    return [0 if each is None else ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found]

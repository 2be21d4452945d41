"""Locks between processes: files that the system unlocks when their holder ends, killed or not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from anydim.base.cache_folder import make_folder

try:
    import fcntl
except ImportError:  # Windows: every process works for itself
    fcntl = None  # type: ignore[assignment]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between two attempts


@contextmanager
def locked(path: str, done: Callable[[], bool], longest: float) -> Iterator[bool]:
    """Hold the lock of a path; yields False where it is not held.

    A waiter gives up as soon as `done()` is true, and after `longest` seconds. A folder that cannot
    be written, and a system without such locks, count as not held.
    """
    handle = None if fcntl is None else _acquired(path, done, time.monotonic() + longest)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):
                os.unlink(path)
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may have the same open file
            os.close(handle)


def _acquired(path: str, done: Callable[[], bool], end: float) -> int | None:
    """The open and locked file; None where that is not possible or not needed."""
    pause = _FIRST_PAUSE
    while True:
        handle = -1
        try:
            make_folder(os.path.dirname(path))
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(path, handle):
                return handle
        except BlockingIOError:
            if done() or time.monotonic() > end:
                os.close(handle)
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        except OSError:
            if handle >= 0:
                os.close(handle)
            return None
        os.close(handle)


def _is_file(path: str, handle: int) -> bool:
    """Whether a path still names an open file: the last holder removes it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False

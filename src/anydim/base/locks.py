"""Inter-process file locks, which the system releases when their holder exits or dies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from anydim.base.cache_folder import make_folder

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between two attempts


@contextmanager
def locked(path: str, done: Callable[[], bool], longest: float) -> Iterator[bool]:
    """Hold the lock of a path; yields whether it is held.

    A waiter returns early once `done()` is true, and after `longest` seconds. A folder that is not
    writable, and a system without such locks, count as not held.
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
    """The open and locked file; None if not possible or no longer needed."""
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
    """Whether a path still names an open file: the previous holder removes it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False

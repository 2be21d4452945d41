"""Inter-process file locks, which the system releases when their holder exits or dies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from anydim.base.cache_folder import make_folder
from anydim.base.read_files import boot

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between two attempts
_STOPPED, _IDLE = 2.0, 60.0  # seconds until a stopped holder, and one that does not run, is passed
_NOTE = 128  # bytes of a lock that name its holder


@contextmanager
def lock_path(path: str, done: Callable[[], bool], longest: float) -> Iterator[bool]:
    """Hold the lock of a path; yields whether it is held.

    A waiter returns early once `done()` is true, after `longest` seconds, and if the holder is
    stopped or gets no further (on Linux). A folder that is not writable, and a system without such
    locks, count as not held.
    """
    handle = None if fcntl is None else _acquire(path, done, time.monotonic() + longest)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):
                os.unlink(path)
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may have the same open file
            os.close(handle)


def _acquire(path: str, done: Callable[[], bool], end: float) -> int | None:
    """The open and locked file; None if not possible or no longer needed."""
    pause, holder = _FIRST_PAUSE, _Holder()
    while True:
        handle = -1
        try:
            make_folder(os.path.dirname(path))
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(path, handle):
                os.truncate(handle, 0)
                os.pwrite(handle, _note().encode(), 0)
                return handle
        except BlockingIOError:
            if done() or time.monotonic() > end or holder.is_stuck(handle):
                os.close(handle)
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        except OSError:
            if handle >= 0:
                os.close(handle)
            return None
        os.close(handle)


class _Holder:
    """Watches the process that holds a lock, to detect that it makes no progress."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._since = 0.0

    def is_stuck(self, handle: int) -> bool:
        """Whether it has been stopped, or has not used the processor, for some time."""
        now, seen = time.monotonic(), _progress(handle)
        if seen is None or seen != self._last:
            self._last, self._since = seen, now
            return False
        return now - self._since > (_STOPPED if seen[0] in "tT" else _IDLE)


def _note() -> str:
    """What a lock says of its holder: the process, and the name space of its number."""
    return f"{os.getpid()} {_name_space()}"


def _name_space() -> str:
    """The machine's start and the name space of processes; "" where the system does not tell."""
    try:
        return f"{boot()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _progress(handle: int) -> tuple[str, str] | None:
    """The state of the holder, and its times of the processor with its children; None if unknown.
    A process of another machine or container is not known."""
    try:
        number, _, where = os.pread(handle, _NOTE, 0).decode().partition(" ")
        if not number.isdigit() or not where or where != _name_space():
            return None
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            state, *rest = file.read().rpartition(") ")[2].split()
        return state, " ".join(rest[10:14])
    except (OSError, ValueError):
        return None


def _is_file(path: str, handle: int) -> bool:
    """Whether a path still names an open file: the previous holder removes it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False

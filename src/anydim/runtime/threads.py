"""Memory and worker threads of a native fork-join pool.

Workers are daemon threads that stay in native code, without the interpreter's lock, until the pool
is closed. The layout of `_Pool` is that of `%pool` in `native/threads.py`.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from functools import lru_cache
from typing import Any

from anydim.base.records import dataclass
from anydim.base.user_values import is_auto, whole_within
from anydim.runtime.cores import usual_cores
from anydim.runtime.system_functions import c_library

SPINNING = 50e-6  # seconds that a worker spins before it blocks: most calls follow sooner
_ALL_WORTH = 1 << 16  # above the work for which sleeping workers are woken
_TRIED = 1000  # polls per measurement: 10 to 60 us
_CLOSING_SECONDS = 1.0
_WAIT = 2  # index of the blocking function
_LOCK_BYTES = 256  # above the size of a mutex or condition on any system
AUTO = "auto"
MOST = 1024  # maximum threads of a call


def known_threads(threads: Any) -> int:
    """Return the number of threads of a call; raises OptionError for an invalid number.

    "auto" is the number of available cores (`runtime/cores.py`).
    """
    if is_auto(threads):
        return min(usual_cores(), MOST)
    hint = f'give the number of cores to use, 1 to {MOST}, or "{AUTO}"'
    return whole_within("threads", threads, 1, MOST, hint)


class _Pool(ctypes.Structure):
    _fields_ = (
        ("state", ctypes.c_int64),
        ("space_0", ctypes.c_char * 56),
        ("done", ctypes.c_int64),
        ("space_1", ctypes.c_char * 56),
        ("job", ctypes.c_int64 * 7),
        ("space_2", ctypes.c_char * 8),
        ("sleepers", ctypes.c_int64),
        ("wakes", ctypes.c_int64),
        ("waiting", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("alive", ctypes.c_int64),
        ("spins", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("busy", ctypes.c_int64),
        ("functions", ctypes.c_void_p * 5),
        ("locks", ctypes.c_void_p * 3),
        ("missed", ctypes.c_int64),
        ("space_3", ctypes.c_char * 56),
    )


@dataclass(frozen=True)
class PoolCode:
    """Addresses of the native functions of a pool; `keep` keeps their memory alive."""

    worker: int
    stop: int
    keep: object


class Pool:
    """`threads - 1` workers besides the caller. One call at a time: `take` it first.

    `taken` holds the call that owns the pool, so that an interrupted call can recognise itself;
    `taken.clear()` releases the pool in one step that no signal can divide.
    """

    def __init__(self, code: PoolCode, threads: int) -> None:
        """Raises OSError without POSIX threads, RuntimeError if no thread can be started."""
        self.taken: dict[int, object] = {}
        self.ended = 0.0  # end of the last call
        self.process = os.getpid()
        memory = _Memory(threads)
        self._memory = memory  # at exit a call may still run when the pool is closed
        self.address = memory.address
        memory.pool.spins = _spins(code.worker)
        self._finalizer = weakref.finalize(self, _close, memory, code, self.process)
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.worker)
        for number in range(1, threads):
            memory.pool.alive += 1
            arguments = (worker, memory, number, code)
            thread = threading.Thread(
                target=_serve, args=arguments, name=f"anydim-worker-{number}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                memory.pool.alive -= 1
                self.close()
                raise

    def take(self, call: object) -> bool:
        """Acquire the pool for a call; return whether that succeeded."""
        return self.taken.setdefault(0, call) is call

    def worth(self, parallel: int) -> int:
        """Return the minimum work for threads (`WORTH_WAKING` in `layout.py`).

        In a sequence of calls workers keep spinning in between, so less work is worthwhile.
        """
        soon = time.perf_counter() - self.ended < SPINNING
        return max(parallel, _ALL_WORTH) if soon else parallel

    def close(self) -> None:
        """End the workers; they hold no reference to the pool afterwards."""
        self._finalizer()


class _Memory:
    """The pool structure, aligned to cache lines, a word per part, and its locks."""

    def __init__(self, threads: int) -> None:
        size = ctypes.sizeof(_Pool) + -(-threads // 8) * 64
        self._bytes = (ctypes.c_char * (size + 64 + 3 * _LOCK_BYTES))()
        self.address = -(-ctypes.addressof(self._bytes) // 64) * 64
        self.pool = _Pool.from_address(self.address)
        self.pool.threads = threads
        first = self.address + size
        self.pool.locks[:] = [first, first + _LOCK_BYTES, first + 2 * _LOCK_BYTES]
        self.pool.functions[:] = _system_functions(self.pool.locks)


def _system_functions(locks: ctypes.Array[ctypes.c_void_p]) -> list[int | None]:
    """Initialise mutex and conditions; return the addresses of lock, unlock, wait, broadcast,
    yield."""
    system = c_library()
    if not hasattr(system, "pthread_cond_wait"):
        raise OSError("no POSIX threads on this system")
    system.pthread_mutex_init(ctypes.c_void_p(locks[0]), None)
    for condition in locks[1:]:
        system.pthread_cond_init(ctypes.c_void_p(condition), None)
    names = ("mutex_lock", "mutex_unlock", "cond_wait", "cond_broadcast")
    found = [getattr(system, f"pthread_{name}") for name in names] + [system.sched_yield]
    return [ctypes.cast(function, ctypes.c_void_p).value for function in found]


@lru_cache(maxsize=64)
def _spins(worker: int) -> int:
    """Return the number of polls that take `SPINNING`.

    A pause instruction takes ten times as long on some processors as on others; it is measured on a
    worker of an empty pool, whose blocking function returns at once.
    """
    memory = _Memory(1)

    def leave(condition: int, mutex: int) -> None:
        memory.pool.stop = 1

    block = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(leave)
    memory.pool.functions[_WAIT] = ctypes.cast(block, ctypes.c_void_p).value
    memory.pool.spins = _TRIED
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(worker)
    taken = []
    for _ in range(3):
        memory.pool.stop, start = 0, time.perf_counter()
        work(memory.address, 0)
        taken.append(time.perf_counter() - start)
    return max(_TRIED // 10, round(_TRIED * SPINNING / min(taken)))


def _serve(worker: ctypes._FuncPointer, memory: _Memory, number: int, code: PoolCode) -> None:
    """Run a worker thread; keeps memory and code alive."""
    worker(memory.address, number)


def _close(memory: _Memory, code: PoolCode, process: int) -> None:
    """Wait, for a bounded time, until no worker is in native code. Also runs at exit."""
    if os.getpid() != process:  # the workers stayed in the parent
        return
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.stop)(memory.address)
    end = time.monotonic() + _CLOSING_SECONDS
    while memory.pool.alive and time.monotonic() < end:
        time.sleep(0.0001)

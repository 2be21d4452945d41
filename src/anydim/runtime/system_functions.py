"""Addresses of system functions for native code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from anydim.runtime.systems import this_system

_MUTEX_BYTES = 256  # above the size of a mutex on any system


@cache
def c_library() -> ctypes.CDLL:
    """Return the system's C library; where it has POSIX threads, with them."""
    system = this_system()
    return ctypes.CDLL(system.c_library or None if system else None)


@cache
def memory_functions() -> tuple[int, ...]:
    """Return the addresses of malloc, free, memcpy and memset."""
    return tuple(_address(c_library(), name) for name in ("malloc", "free", "memcpy", "memset"))


@cache
def lock_functions() -> tuple[int, ...]:
    """Return the addresses of mutex lock and unlock; both 0 without POSIX threads."""
    if not hasattr(c_library(), "pthread_mutex_init"):
        return 0, 0
    return tuple(_address(c_library(), f"pthread_mutex_{name}") for name in ("lock", "unlock"))


class Mutex:
    """A non-recursive mutex shared with native code."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(_MUTEX_BYTES)
        self.address = ctypes.addressof(self._bytes)
        self._holders: set[int] = set()
        self.functions = lock_functions()
        self._take: Callable[[Any], Any]
        self._give: Callable[[Any], Any]
        if self.functions[0]:
            c_library().pthread_mutex_init(ctypes.c_void_p(self.address), None)
            made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
            self._take, self._give = map(made, self.functions)
        else:
            lock = threading.Lock()
            self._take, self._give = lambda _: lock.acquire(), lambda _: lock.release()

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds or awaits it: finalizers may run meanwhile."""
        return threading.get_ident() in self._holders

    def __enter__(self) -> None:
        self._holders.add(threading.get_ident())
        self._take(self.address)  # releases the interpreter's lock

    def __exit__(self, *error: object) -> None:
        self._give(self.address)
        self._holders.discard(threading.get_ident())


def _address(system: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(system, name), ctypes.c_void_p).value or 0

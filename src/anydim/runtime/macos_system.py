"""macOS: memory of MAP_JIT is writable or executable, as each thread says; a process without the
right to it (`com.apple.security.cs.allow-jit`) makes memory executable by mprotect.

Source: Apple, "Porting just-in-time compilers to Apple silicon".
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from ctypes import c_int, c_long, c_size_t, c_void_p
from functools import cache
from typing import Any

from anydim.runtime.cpuid import UNIX_STUBS, x86_flags

_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _ANONYMOUS, _JIT = 0x0002, 0x1000, 0x0800
_FAILED = c_void_p(-1).value
_ARM = {"asimddp": "hw.optional.arm.FEAT_DotProd"}


@cache
def _system() -> Any:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = c_void_p
    system.mmap.argtypes = c_void_p, c_size_t, c_int, c_int, c_int, c_long
    system.mprotect.argtypes = c_void_p, c_size_t, c_int
    system.munmap.argtypes = c_void_p, c_size_t
    system.sys_icache_invalidate.argtypes = c_void_p, c_size_t
    return system


class _Owner:
    """Unmaps memory when nothing refers to it any more."""

    def __init__(self, address: int, length: int) -> None:
        weakref.finalize(self, _system().munmap, address, length).atexit = False


def map_code(code: bytes) -> tuple[memoryview, int, object]:
    """Copy code to executable memory; raises OSError if the system forbids it."""
    system, length = _system(), len(code)
    address = _map_pages(length, _READ | _WRITE | _EXECUTE, _JIT)
    protect: Callable[[int], object] = getattr(system, "pthread_jit_write_protect_np", bool)
    if address is None:
        address = _map_pages(length, _READ | _WRITE, 0)
        protect = bool  # by mprotect, below
    if address is None:
        raise _error()
    owner = _Owner(address, length)
    protect(0)
    ctypes.memmove(address, code, length)
    protect(1)
    if system.mprotect(address, length, _READ | _EXECUTE) and protect is bool:
        raise _error()
    system.sys_icache_invalidate(address, length)
    view = (ctypes.c_char * length).from_address(address)
    return memoryview(view).cast("B"), address, owner


def flags() -> frozenset[str]:
    """Return the features of this processor."""
    if os.uname().machine == "x86_64":
        return x86_flags(map_code, UNIX_STUBS)
    return frozenset({"fp", "asimd", *(flag for flag, name in _ARM.items() if _has(name))})


def _map_pages(length: int, protection: int, more: int) -> int | None:
    """Map memory; None if the system refuses."""
    flags = _PRIVATE | _ANONYMOUS | more
    address = _system().mmap(None, length, protection, flags, -1, 0)
    return None if address == _FAILED else address


def _error() -> OSError:
    """Return the last error of the system."""
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _has(name: str) -> bool:
    value, size = c_int(0), c_size_t(ctypes.sizeof(c_int))
    missing = _system().sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, c_size_t(0)
    )
    return not missing and bool(value.value)

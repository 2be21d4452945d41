"""Windows: memory is written, then made executable. Source: Microsoft, memoryapi.h."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any

from anydim.runtime.cpuid import WINDOWS_STUBS, x86_flags

_COMMIT_AND_RESERVE, _RELEASE = 0x3000, 0x8000
_READ_WRITE, _EXECUTE_READ = 0x04, 0x20


@cache
def _kernel() -> Any:
    """Return the functions of the system; a pointer is an argument of 64 bits."""
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    kernel.VirtualAlloc.restype = c_void_p
    kernel.VirtualAlloc.argtypes = c_void_p, c_size_t, c_uint32, c_uint32
    kernel.VirtualProtect.argtypes = c_void_p, c_size_t, c_uint32, c_void_p
    kernel.VirtualFree.argtypes = c_void_p, c_size_t, c_uint32
    kernel.FlushInstructionCache.argtypes = c_void_p, c_void_p, c_size_t
    kernel.GetCurrentProcess.restype = c_void_p
    return kernel


class _Owner:
    """Frees memory when nothing refers to it any more."""

    def __init__(self, address: int) -> None:
        weakref.finalize(self, _kernel().VirtualFree, address, 0, _RELEASE).atexit = False


def map_code(code: bytes) -> tuple[memoryview, int, object]:
    """Copy code to executable memory; raises OSError if the system forbids it."""
    kernel, before = _kernel(), c_uint32()
    address = kernel.VirtualAlloc(None, len(code), _COMMIT_AND_RESERVE, _READ_WRITE)
    if not address:
        raise _error()
    owner = _Owner(address)
    ctypes.memmove(address, code, len(code))
    if not kernel.VirtualProtect(address, len(code), _EXECUTE_READ, ctypes.byref(before)):
        raise _error()
    kernel.FlushInstructionCache(kernel.GetCurrentProcess(), address, len(code))
    view = (ctypes.c_char * len(code)).from_address(address)
    return memoryview(view).cast("B"), address, owner


def flags() -> frozenset[str]:
    """Return the features of this processor."""
    return x86_flags(map_code, WINDOWS_STUBS)


def _error() -> OSError:
    """Return the last error of the system."""
    return ctypes.WinError(ctypes.get_last_error())  # type: ignore[attr-defined]

"""Linux: pages are mapped from the file, so that processes share them. If its file system forbids
execution, code is copied to anonymous memory, which is then made executable.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from typing import BinaryIO

import numpy

_READ, _EXECUTE = 1, 4  # of mprotect
_ENOUGH = 1 << 14  # bytes of /proc/cpuinfo with the first processor; reading all of it is slow


def map_file(file: BinaryIO, offset: int, length: int) -> tuple[memoryview, int, mmap.mmap]:
    """Map a part of a file; raises OSError or ValueError if that is impossible there."""
    return _memory(mmap.mmap(
        file.fileno(), length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC,
        offset=offset,
    ))  # fmt: skip


def map_code(code: bytes) -> tuple[memoryview, int, mmap.mmap]:
    """Copy code to executable memory; raises OSError if the system forbids it."""
    memory = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    made = _memory(memory)
    system = ctypes.CDLL(None, use_errno=True)
    start, size = ctypes.c_void_p(made[1]), ctypes.c_size_t(len(code))
    if system.mprotect(start, size, _READ | _EXECUTE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return made


def flags() -> frozenset[str]:
    """Return the features of the first processor."""
    letters, *names = cpuinfo_value("isa").removeprefix("rv64").split("_")  # of RISC-V
    return frozenset((*cpuinfo_value("flags", "Features").split(), *letters, *filter(None, names)))


def cpuinfo_value(*names: str) -> str:
    """Return the first processor's value for one of several keys of /proc/cpuinfo."""
    for line in _first_processor().splitlines():
        name, _, values = line.partition(":")
        if name.strip() in names:
            return values.strip()
    return ""


@cache
def _first_processor() -> str:
    """Return the beginning of /proc/cpuinfo; the kernel takes a while to write it."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            return file.read(_ENOUGH).decode("ascii", "replace")
    except OSError:
        return ""


def _memory(memory: mmap.mmap) -> tuple[memoryview, int, mmap.mmap]:
    address = int(numpy.frombuffer(memory, numpy.uint8).ctypes.data)
    return memoryview(memory), address, memory

"""The memory of a process below a limit: what it takes, and what is left for requests."""

from __future__ import annotations

import ctypes
import os

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import MemoryLimitError

SPARE = 0.05  # of a limit, for connections and the interpreter
LEAST_SPARE = 32 << 20  # bytes
_ARENAS, _MAPPED = -8, -3  # parameters of glibc's mallopt
_LARGE = 1 << 20  # bytes of arrays that are mapped, and returned when they are freed


def resident_bytes() -> int:
    """Bytes of memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


def most_resident_bytes() -> int:
    """The most bytes of memory that this process had; 0 where the system does not tell.

    Not `ru_maxrss` of getrusage, which has the memory of the process that started this one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
            return int(line.split()[1]) << 10
    except (OSError, ValueError, StopIteration):
        return 0


def spare_bytes(limit: int) -> int:
    """Bytes of a limit that are kept free."""
    return max(LEAST_SPARE, int(limit * SPARE))


def room_within(limit: int, argument: str = "memory", later: int = 0) -> int:
    """Bytes that a process with its models leaves of a limit, without the spare ones.

    `later` are bytes that it takes from the first call on, such as mapped weights.
    Raises MemoryLimitError, which names the `argument`, if that is nothing.
    """
    taken, spare = resident_bytes() + later, spare_bytes(limit)
    room = limit - taken - spare
    if room <= 0:
        raise MemoryLimitError(
            f"{argument} {exact_bytes_text(limit)}: the process with its models takes "
            f"{exact_bytes_text(taken)}, and {exact_bytes_text(spare)} are kept free",
            "raise the limit, or serve fewer models",
        )
    return room


def bound_the_allocator() -> None:
    """Have glibc return large arrays at once, and keep few pools."""
    system = ctypes.CDLL(None) if os.name == "posix" else None
    tune = getattr(system, "mallopt", None)
    if tune is not None:
        tune(_ARENAS, 2)
        tune(_MAPPED, _LARGE)


def return_free_memory() -> None:
    """Have glibc return pages of its pools that hold nothing."""
    trim = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "malloc_trim", None)
    if trim is not None:
        trim(0)

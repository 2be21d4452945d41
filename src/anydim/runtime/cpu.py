"""The processor of this process, as the operating system describes it."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from anydim.base.records import dataclass

_SAME = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
_TILES_PLEASE = (158, 0x1023, 18)  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
_ENOUGH = 1 << 14  # bytes of /proc/cpuinfo with the first processor; reading all of it is slow


@dataclass(frozen=True)
class Level:
    """A processor level: a name, an architecture, and required features.

    `flags` are feature names as in /proc/cpuinfo.
    """

    name: str
    architecture: str
    flags: frozenset[str]

    def missing(self, other: Level) -> frozenset[str] | None:
        """Return the features that `other` lacks; None for another architecture."""
        if self.architecture != other.architecture:
            return None
        return self.flags - other.flags


@cache
def this_level() -> Level:
    """Return the level of this machine, without features that this process may not use.

    The flags are empty if the system does not report them.
    """
    flags = frozenset(_cpuinfo_value("flags", "Features").split())
    if not tiles_allowed():
        flags = frozenset(flag for flag in flags if not flag.startswith("amx_"))
    return Level("native", _architecture(), flags)


@cache
def tiles_allowed() -> bool:
    """Request permission for AMX tiles and return whether it was granted; it holds for all threads
    and children. Source: Linux, Documentation/arch/x86/xstate.rst."""
    if _architecture() != "x86_64" or "amx_tile" not in _cpuinfo_value("flags").split():
        return False
    system = ctypes.CDLL(None)
    return hasattr(system, "syscall") and system.syscall(*map(ctypes.c_long, _TILES_PLEASE)) == 0


def _architecture() -> str:
    name = os.uname().machine if hasattr(os, "uname") else ""
    return _SAME.get(name, name)


def processor_name() -> str:
    """Return the processor's model name, '' if unknown."""
    return _cpuinfo_value("model name")


def _cpuinfo_value(*names: str) -> str:
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

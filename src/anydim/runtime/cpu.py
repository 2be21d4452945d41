"""The processor of this process, as the operating system describes it."""

from __future__ import annotations

import ctypes
from functools import cache

from anydim.base.records import dataclass
from anydim.runtime.linux_system import cpuinfo_value
from anydim.runtime.systems import this_platform, this_system

_TILES_PLEASE = (158, 0x1023, 18)  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA


@dataclass(frozen=True)
class Level:
    """A processor level: a name, an architecture, and required features.

    `architecture` is a platform (`System.platform`), `flags` are names as in /proc/cpuinfo.
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
    system = this_system()
    flags = frozenset() if system is None else system.load().flags()
    if not tiles_allowed():
        flags = frozenset(flag for flag in flags if not flag.startswith("amx_"))
    return Level("native", this_platform(), flags)


@cache
def tiles_allowed() -> bool:
    """Request permission for AMX tiles and return whether it was granted; it holds for all threads
    and children. Source: Linux, Documentation/arch/x86/xstate.rst."""
    if this_platform() != "x86_64" or "amx_tile" not in cpuinfo_value("flags").split():
        return False
    system = ctypes.CDLL(None)
    return hasattr(system, "syscall") and system.syscall(*map(ctypes.c_long, _TILES_PLEASE)) == 0


def processor_name() -> str:
    """Return the processor's model name, '' if unknown."""
    return cpuinfo_value("model name")

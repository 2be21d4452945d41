"""The processor that this process runs on, as the system describes it: no compiler is asked."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from anydim.base.records import dataclass

_SAME = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
_TILES_PLEASE = (158, 0x1023, 18)  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
_ENOUGH = 1 << 14  # bytes of /proc/cpuinfo that hold the first processor; all of it takes long


@dataclass(frozen=True)
class Level:
    """A kind of processor: its `name` for users, its architecture, and what it must have.

    `flags` are Linux's names of features, those of /proc/cpuinfo.
    """

    name: str
    architecture: str
    flags: frozenset[str]

    def missing(self, other: Level) -> frozenset[str] | None:
        """What `other` lacks to run code of this level; None where it never does."""
        if self.architecture != other.architecture:
            return None
        return self.flags - other.flags


@cache
def this_level() -> Level:
    """This machine; its flags are empty where the system does not tell them.

    Features that the system does not let this process use are not among them.
    """
    flags = frozenset(_said("flags", "Features").split())
    if not tiles_allowed():
        flags = frozenset(flag for flag in flags if not flag.startswith("amx_"))
    return Level("native", _architecture(), flags)


@cache
def tiles_allowed() -> bool:
    """Whether this process may use the processor's tiles (AMX): Linux wants to be asked once, for
    all threads and what is forked. Source: Documentation/arch/x86/xstate.rst."""
    if _architecture() != "x86_64" or "amx_tile" not in _said("flags").split():
        return False
    system = ctypes.CDLL(None)
    return hasattr(system, "syscall") and system.syscall(*map(ctypes.c_long, _TILES_PLEASE)) == 0


def _architecture() -> str:
    name = os.uname().machine if hasattr(os, "uname") else ""
    return _SAME.get(name, name)


def processor_name() -> str:
    """What its maker calls the processor, '' where the system does not tell."""
    return _said("model name")


def _said(*names: str) -> str:
    """What the system says of the first processor under one of some names."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            text = file.read(_ENOUGH).decode("ascii", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        name, _, values = line.partition(":")
        if name.strip() in names:
            return values.strip()
    return ""

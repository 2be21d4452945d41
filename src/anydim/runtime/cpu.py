"""The processor that this process runs on, as the system describes it: no compiler is asked."""

from __future__ import annotations

import os
from functools import cache

from anydim.base.records import dataclass

_SAME = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
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
    """This machine; its flags are empty where the system does not tell them."""
    architecture = os.uname().machine if hasattr(os, "uname") else ""
    return Level("native", _SAME.get(architecture, architecture), _flags())


def _flags() -> frozenset[str]:
    """The features of the first processor."""
    return frozenset(_said("flags", "Features").split())


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

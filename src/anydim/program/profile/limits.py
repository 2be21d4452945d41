"""What a machine can do at most: measured once, kept in the cache."""

from __future__ import annotations

import json
import platform
from importlib import import_module
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.cpu import this_level

_FORMAT = "1"


@dataclass(frozen=True)
class Limits:
    """Operations (a multiply-add counts two) and bytes a second of `threads` threads, float32."""

    threads: int
    flops: float
    bytes: float

    def seconds(self, flops: float, moved: float) -> float:
        """The least time for so much work; operations and bytes go on at once."""
        return max(flops / self.flops, moved / self.bytes)

    def most(self, other: Limits) -> Limits:
        """The larger of each, for equally many threads."""
        return Limits(self.threads, max(self.flops, other.flops), max(self.bytes, other.bytes))


def kept(threads: int) -> Limits | None:
    """What was measured on this machine with so many threads; None where nothing was."""
    disk = _cache()
    data = disk.get(_key(threads)) if disk is not None else None
    return Limits(**json.loads(data)) if data is not None else None


def keep(limits: Limits) -> None:
    """Keep them for later processes."""
    disk = _cache()
    if disk is not None:
        text = json.dumps({"threads": limits.threads, "flops": limits.flops, "bytes": limits.bytes})
        disk.put(_key(limits.threads), text.encode())


def _cache() -> Any:
    return import_module("anydim.base.cache").user_cache()


def _key(threads: int) -> str:
    """The machine: its name, its processor, and how many threads."""
    level = this_level()
    made: str = import_module("anydim.base.cache").key_of(
        "limits", _FORMAT, platform.node(), level.architecture, *sorted(level.flags), str(threads)
    )
    return made

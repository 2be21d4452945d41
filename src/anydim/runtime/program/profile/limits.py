"""The peak rates of a machine: measured once, kept in the cache."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable

from anydim.base.cache import DiskCache, key_of, user_cache
from anydim.base.records import dataclass
from anydim.runtime.cpu import this_level

Done = tuple[float, float, float]  # operations, bytes, seconds
_FORMAT = "2"


@dataclass(frozen=True)
class Limits:
    """Peak operations per second (a multiply-add counts two) of `threads` threads in float32, and
    `reads`: sizes of working sets in bytes, ascending, with the rate of repeated reads. Small ones
    fit caches, the largest is in memory."""

    threads: int
    flops: float
    reads: tuple[tuple[int, float], ...]

    @property
    def bytes(self) -> float:
        """Bytes per second from memory."""
        return self.reads[-1][1]

    def rate(self, moved: float) -> float:
        """Return the peak bytes per second for `moved` bytes: that of the largest measured set that
        is no larger.

        A higher rate of a larger set counts, too: the machine was busy before.
        """
        first = max((n for n, (size, _) in enumerate(self.reads) if size <= moved), default=0)
        return max(rate for _, rate in self.reads[first:])

    def seconds(self, flops: float, moved: float) -> float:
        """Return the minimum time of this work; computation and memory accesses overlap."""
        return max(flops / self.flops, moved / self.rate(moved))

    def is_exceeded(self, done: Iterable[Done]) -> bool:
        """Whether something took less than the minimum time."""
        return any(seconds < self.seconds(flops, moved) for flops, moved, seconds in done)

    def most(self, other: Limits) -> Limits:
        """Return the maximum of both, for the same number of threads and the same sets."""
        pairs = zip(self.reads, other.reads)
        reads = tuple((size, max(rate, again)) for (size, rate), (_, again) in pairs)
        return Limits(self.threads, max(self.flops, other.flops), reads)


def read_limits(threads: int) -> Limits | None:
    """Return the stored measurement of this machine for that number of threads, or None."""
    disk = _cache()
    data = disk.get(_key(threads)) if disk is not None else None
    if data is None:
        return None
    found = json.loads(data)
    return Limits(found["threads"], found["flops"], tuple(map(tuple, found["reads"])))


def keep(limits: Limits) -> None:
    """Store the limits for later processes."""
    disk = _cache()
    if disk is not None:
        text = json.dumps({"threads": limits.threads, "flops": limits.flops, "reads": limits.reads})
        disk.put(_key(limits.threads), text.encode())


def _cache() -> DiskCache | None:
    return user_cache()


def _key(threads: int) -> str:
    """Identify the machine: its name, its processor, and the number of threads."""
    level = this_level()
    return key_of(
        "limits", _FORMAT, platform.node(), level.architecture, *sorted(level.flags), str(threads)
    )

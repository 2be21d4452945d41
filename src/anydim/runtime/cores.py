"""The number of cores that this process may use: its CPU affinity and its container's quota.

Linux reports the affinity by `sched_getaffinity` and the quota of a container by control groups:
version 2 as `cpu.max` ("200000 100000": 200 ms of every 100 ms, two cores), version 1 as
`cpu.cfs_quota_us` and `cpu.cfs_period_us`. The smallest quota of all enclosing groups applies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

REQUESTED = "OMP_NUM_THREADS"  # common to numerical libraries; first entry: the outermost level


def usual_cores() -> int:
    """Return the default number of threads: OMP_NUM_THREADS, otherwise all available cores."""
    first = os.environ.get(REQUESTED, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else available_cores()


def available_cores(root: str | os.PathLike[str] = "/") -> int:
    """Return the number of usable cores, at least 1; `root` is the root of the file system."""
    pinned = getattr(os, "sched_getaffinity", None)
    cores = len(pinned(0)) if pinned is not None else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(os.fspath(root)))]))


def _quotas(root: str) -> Iterator[float]:
    """Yield the quota of every enclosing control group, in cores."""
    groups = os.path.join(root, "sys/fs/cgroup")
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            for folder in _upwards(groups, path):
                yield from _ratio(_text(f"{folder}/cpu.max").split())
        elif "cpu" in controllers.split(","):
            for folder in _upwards(f"{groups}/cpu", path):
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                yield from _ratio([_text(f"{folder}/{name}").strip() for name in names])


def _upwards(top: str, path: str) -> Iterator[str]:
    """Yield the folders of a group and its ancestors; a container may see only the outermost."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join((top, *parts[:count]))


def _ratio(words: list[str]) -> Iterator[float]:
    """Yield quota / period, or nothing if there is no quota ("max", -1)."""
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
        yield int(words[0]) / int(words[1])


def _text(path: str) -> str:
    """Read a system file; '' if it is missing or unreadable."""
    with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        return file.read()
    return ""

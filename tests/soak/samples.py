"""What a process holds, sampled again and again, and whether that is flat.

Memory is looked at after models have given back their idle arenas, which follow the last 64 calls,
the collector has run and malloc has given back what it keeps free (`malloc_trim`): what stays is
what something holds, and what lies between. Anonymous memory is the measure, as pages of files
(libraries, mapped models) come and go as the system likes; the resident set has them, too. What
malloc has given out (`mallinfo2`, with glibc) tells what is held from what lies between. Medians of
the first and of the last fifth of the samples after the warm-up are compared, as single samples
move by where threads were when the sample was taken.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

WARM = 0.25  # of the time, at whose end caches are full and every size was seen
PART = 5  # one of so many parts of what follows is compared with the last one
MOST = 0.01  # that memory may grow by
MEMORY = ("anonymous", "resident", "in_use")


@dataclass(frozen=True)
class Sample:
    """What the process holds at a time: bytes, and numbers of things."""

    seconds: float
    rounds: int
    calls: int
    compiles: int
    anonymous: int
    resident: int
    in_use: int  # that malloc has given out; 0 where the C library does not say
    mappings: int
    handles: int
    threads: int

    @staticmethod
    def now(seconds: float, rounds: int, calls: int, compiles: int) -> Sample:
        gc.collect()
        _trim()
        threads = min(map(_count_threads, range(5)))
        status = _status()
        anonymous, resident = (int(status[n].split()[0]) * 1024 for n in ("RssAnon", "VmRSS"))
        return Sample(
            seconds, rounds, calls, compiles, anonymous, resident, _in_use(),
            Path("/proc/self/maps").read_bytes().count(b"\n"),
            len(os.listdir("/proc/self/fd")), threads,
        )  # fmt: skip


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return dict(line.split(":", 1) for line in lines)


def _count_threads(attempt: int) -> int:
    """Threads of the process; a joined thread leaves the system's list a moment later."""
    time.sleep(0.01 if attempt else 0.0)
    return int(_status()["Threads"])


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not every C library has it
    if trim is not None:
        trim(0)


class _MallInfo(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


def _in_use() -> int:
    """Bytes of malloc's own pages and of mappings of their own."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _MallInfo
    told = ask()
    return int(told.uordblks + told.hblkhd)


NAMES = tuple(field.name for field in fields(Sample))


def table(samples: Sequence[Sample]) -> str:
    """The samples as comma-separated values."""
    rows = [NAMES, *map(astuple, samples)]
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


@dataclass(frozen=True)
class Verdict:
    """How something changed: its median after the warm-up and at the end."""

    name: str
    before: float
    after: float
    most: float

    @property
    def growth(self) -> float:
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def flat(self) -> bool:
        return self.growth <= self.most

    def __str__(self) -> str:
        change = f"{self.before:14,.0f} -> {self.after:14,.0f} {self.growth:+8.2%}"
        return f"{self.name:10} {change}  {'flat' if self.flat else 'GROWS'}"


def verdicts(samples: Sequence[Sample], warm: float = WARM, most: float = MOST) -> list[Verdict]:
    """Memory within `most`; handles, threads and mappings no more than they were."""
    end = samples[-1].seconds
    later = [sample for sample in samples if sample.seconds >= warm * end]
    count = max(1, len(later) // PART)
    bounds = {**dict.fromkeys(MEMORY, most), "mappings": most,
              "handles": 0.0, "threads": 0.0}  # fmt: skip

    def middle(name: str, part: Sequence[Sample]) -> float:
        return float(median(getattr(sample, name) for sample in part))

    return [
        Verdict(name, middle(name, later[:count]), middle(name, later[-count:]), bound)
        for name, bound in bounds.items()
    ]

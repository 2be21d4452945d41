"""The profile of a model: launches with their times, work and share of the machine's peak."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from os import PathLike
from typing import Any

from anydim.base.amounts import bytes_text
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import count_of, kernel_text, nodes_text, time_text
from anydim.runtime.clocked import Clocked
from anydim.runtime.program.profile.limits import Limits
from anydim.runtime.program.profile.trace import HOST, Trace

FORMAT = 1
_SHOWN = 10
_BUSY = 1.25  # ratio of a call to its parts above which the machine is busy
_HEADERS = ("nodes", "kernel", "runs", "time", "of all", "flop/s", "B/s", "of limit", "on")


@dataclass(frozen=True)
class Timed:
    """A launch: its runs per call, and seconds, operations and bytes of all its runs.

    Operations and bytes are bounds if data `decided` sizes of the launch. `place` is the number of
    its segment and its number in it; `device` is the program's name of a device, '' the host.
    """

    place: tuple[int, int]
    kernel: str
    schedule: str
    source: str
    runs: int
    seconds: float
    flops: int
    moved: int
    device: str = ""
    decided: bool = False


@dataclass(frozen=True)
class Copied:
    """The copies of a call to, from and within devices: number, bytes, seconds."""

    copies: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Profile(Shown):
    """Median times of `calls` calls; `seconds` is the time of a call without measurement.

    `limits` are those of the machine, None if not measured. `last` is the last measured call,
    `traced` its trace. If variants are `chosen`, calls use them, and launches are of the generic
    kernels.

    `beside` are the seconds of a call outside launches: the median over measured calls, each with
    its own launches. `spread` has the shortest and the longest call without measurement.

    `devices` are the devices by the program's names. During measurement each request to a device
    completes before the next one; in a normal call they overlap.
    """

    name: str
    sizes: Mapping[str, int]
    threads: int
    calls: int
    seconds: float
    launches: tuple[Timed, ...]
    limits: Limits | None
    last: Clocked = field(repr=False)
    traced: Trace = field(repr=False)
    chosen: bool = False
    devices: Mapping[str, str] = field(default_factory=dict)
    copied: Copied = Copied()
    beside: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)

    @property
    def in_launches(self) -> float:
        """Seconds in launches per call."""
        return sum(launch.seconds for launch in self.launches)

    def costliest(self, most: int | None = None) -> tuple[Timed, ...]:
        """Return the launches by time, descending."""
        return tuple(sorted(self.launches, key=lambda each: -each.seconds)[:most])

    def share(self, launch: Timed) -> float | None:
        """Return the ratio of the minimum time of a launch to its time: 1 is the machine's peak.

        Bytes are compared with the smallest cache that holds them, or with memory. A launch that
        does less than is counted, such as Winograd's algorithm, has 1 too.
        """
        if self.limits is None or not launch.seconds or launch.device or launch.decided:
            return None
        runs = max(1, launch.runs)
        least = runs * self.limits.seconds(launch.flops / runs, launch.moved / runs)
        return min(1.0, least / launch.seconds)

    # ---- for people ----------------------------------------------------------------------------

    def _sheet(self) -> Sheet:
        """The summary, and the most expensive launches."""
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        title = f"{self.name} at {at or 'its only size'}, {count_of(self.threads, 'thread')}"
        return Sheet(title, tuple(self._facts()), tuple(self._tables()))

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "a call", f"{time_text(self.seconds)}, the median of {self.calls}"
        if not self.devices:  # the whole that launches and the rest are parts of
            yield "with clocks", time_text(self.in_launches + self.beside)
        runs = sum(each.runs for each in self.launches)
        yield "launches", f"{time_text(self.in_launches)} in {runs}"
        yield from self._beside(self.in_launches)
        if self.chosen:
            yield "", "a strategy chooses bodies for calls; launches are of the generic ones"
        if self.limits is not None:
            flops, memory = _rate(self.limits.flops, "flop"), _rate(self.limits.bytes, "B")
            cached = _rate(self.limits.rate(0), "B")
            yield "at most", f"{flops}, {memory} from memory, {cached} from caches"

    def _tables(self) -> Iterator[Table]:
        shown, left = self.costliest(_SHOWN), self.costliest()[_SHOWN:]
        if not shown:
            return
        once = all(each.runs == 1 for each in self.launches)
        left_out = {"runs": once, "on": not self.devices}
        rows = [(*self._row(each), each.device or HOST) for each in shown]
        kept = [at for at, name in enumerate(_HEADERS) if not left_out.get(name)]
        headers, *cells = ([each[at] for at in kept] for each in (_HEADERS, *rows))
        spent = time_text(sum(each.seconds for each in left))
        yield Table(headers, cells, 2, more=f"and {len(left)} more, {spent}" if left else "")

    def _beside(self, inside: float) -> Iterator[tuple[str, str]]:
        """Yield the time of a call outside launches."""
        if not self.devices:
            yield "the rest", f"{time_text(self.beside)}: Python, sizes, host code"
            if self.seconds > _BUSY * (inside + self.beside):
                least, most = map(time_text, self.spread)
                yield "", f"calls took from {least} to {most}: the machine is busy"
            return
        copied = self.copied
        moved = f"{_copies(copied.copies)}, {bytes_text(copied.bytes)}"
        yield "copies", f"{time_text(copied.seconds)} in {moved}"
        named = ", ".join(f"{name}: {device}" for name, device in self.devices.items())
        yield "", f"devices ({named}) do one thing after the other here, each waited for"

    def _row(self, launch: Timed) -> tuple[str, ...]:
        inside = self.in_launches
        share, seconds = self.share(launch), launch.seconds or 1e-9
        part = f"{100 * launch.seconds / inside:.1f} %" if inside else "-"
        return (
            nodes_text(launch.source), kernel_text(launch.kernel), str(launch.runs),
            time_text(launch.seconds), part,
            *("-" if launch.decided else _rate(each / seconds, "")[:-2]
              for each in (launch.flops, launch.moved)),
            "-" if share is None else f"{100 * share:.0f} %",
        )  # fmt: skip

    # ---- for programs --------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return the profile as plain dicts, lists, texts and numbers; times in seconds."""
        limits = self.limits
        return {
            "format": FORMAT,
            "model": self.name,
            "sizes": dict(self.sizes),
            "threads": self.threads,
            "calls": self.calls,
            "seconds": self.seconds,
            "beside": self.beside,
            "limits": limits
            and {"flops": limits.flops, "bytes": limits.bytes, "reads": limits.reads},
            "launches": [
                {
                    "segment": launch.place[0], "site": launch.place[1], "kernel": launch.kernel,
                    "schedule": launch.schedule, "source": launch.source, "runs": launch.runs,
                    "seconds": launch.seconds, "flops": launch.flops, "moved": launch.moved,
                    "of_limit": self.share(launch), "device": launch.device,
                    "decided": launch.decided,
                }
                for launch in self.launches
            ],
            "devices": dict(self.devices),
            "copies": {
                "count": self.copied.copies, "bytes": self.copied.bytes,
                "seconds": self.copied.seconds,
            },
        }  # fmt: skip

    def json(self, indent: int | None = 2) -> str:
        """Return the document as text."""
        return json.dumps(self.document(), indent=indent)

    def trace(self) -> dict[str, Any]:
        """Return the last call as trace events, in the format of `Trace.document`."""
        return self.traced.document()

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the trace; raises OptionError for a path that cannot be written."""
        self.traced.save(path)


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _rate(value: float, unit: str) -> str:
    """130 Gflop/s."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"

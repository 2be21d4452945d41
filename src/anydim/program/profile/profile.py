"""What a profile says: launches with their times, work and share of the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from os import PathLike
from typing import Any

from anydim.base.amounts import bytes_text
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import counted, kernel_text, nodes_text, time_text
from anydim.program.profile.limits import Limits
from anydim.program.profile.trace import HOST, Trace
from anydim.runtime.clocked import Clocked

FORMAT = 1
_SHOWN = 10
_BUSY = 1.25  # a call takes so much more than its parts where others take its time
_HEADERS = ("nodes", "kernel", "runs", "time", "of all", "flop/s", "B/s", "of limit", "on")


@dataclass(frozen=True)
class Timed:
    """A launch: how often it ran in a call, and seconds, operations and bytes of all its runs.

    `place` is the number of its segment and its own number there; `device` is a name that the
    program has for one, '' the host.
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


@dataclass(frozen=True)
class Copied:
    """What a call copies to devices, from them and within them: how often, bytes, seconds."""

    copies: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Profile(Shown):
    """Median times of `calls` calls; `seconds` is that of a call without a clock.

    `limits` are those of the machine, None where nothing has measured them. `last` is the last
    call that was clocked, `traced` what it did. Where bodies for certain sizes are `chosen`, calls
    run those, and launches are of the generic ones.

    `beside` are seconds of a call outside of its launches: the median over calls with a clock, each
    with its own launches. `spread` has the shortest and the longest call without a clock.

    `devices` are those that the program's names stand for. What such a device is asked for is seen
    through before the next thing, with all that it takes to ask: in a call, much of it is done
    beside the rest.
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
        """Seconds in launches, of a call."""
        return sum(launch.seconds for launch in self.launches)

    def costliest(self, most: int | None = None) -> tuple[Timed, ...]:
        """The launches that take most of the time first."""
        return tuple(sorted(self.launches, key=lambda each: -each.seconds)[:most])

    def share(self, launch: Timed) -> float | None:
        """How near a launch is to the machine's limits: 1 is as fast as it can be.

        Bytes are compared with the cache that holds so many, or with memory. A launch that does
        less than is counted, as Winograd's algorithm does, has 1 too.
        """
        if self.limits is None or not launch.seconds or launch.device:
            return None
        runs = max(1, launch.runs)
        least = runs * self.limits.seconds(launch.flops / runs, launch.moved / runs)
        return min(1.0, least / launch.seconds)

    # ---- for people ----------------------------------------------------------------------------

    def _sheet(self) -> Sheet:
        """Where the time goes, in short, and the costliest launches."""
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        title = f"{self.name} at {at or 'its only size'}, {counted(self.threads, 'thread')}"
        return Sheet(title, tuple(self._facts()), tuple(self._tables()))

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "a call", f"{time_text(self.seconds)}, the median of {self.calls}"
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
        """What a call takes beside launches."""
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
            time_text(launch.seconds), part, _rate(launch.flops / seconds, "")[:-2],
            _rate(launch.moved / seconds, "")[:-2],
            "-" if share is None else f"{100 * share:.0f} %",
        )  # fmt: skip

    # ---- for programs --------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The profile as plain dicts, lists, texts and numbers; times in seconds."""
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
        """The document as a text."""
        return json.dumps(self.document(), indent=indent)

    def trace(self) -> dict[str, Any]:
        """The last call as trace events, as `Trace.document` has them."""
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

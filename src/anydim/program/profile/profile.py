"""What a profile says: launches with their times, work and share of the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from os import PathLike
from typing import Any

from anydim.base.records import dataclass
from anydim.base.text import counted, table, time_text
from anydim.program.profile.limits import Limits
from anydim.program.profile.trace import Trace
from anydim.runtime.clocked import Clocked

FORMAT = 1
_SHOWN = 10
_NAMED = 48  # characters of the nodes of a launch in a table


@dataclass(frozen=True)
class Timed:
    """A launch: how often it ran in a call, and seconds, operations and bytes of all its runs.

    `place` is the number of its segment and its own number there.
    """

    place: tuple[int, int]
    kernel: str
    schedule: str
    source: str
    runs: int
    seconds: float
    flops: int
    moved: int


@dataclass(frozen=True)
class Profile:
    """Median times of `calls` calls; `seconds` is that of a call without a clock.

    `limits` are those of the machine, None where nothing has measured them. `last` is the last
    call that was clocked, `traced` what it did. Where bodies for certain sizes are `chosen`, calls
    run those, and launches are of the generic ones.
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

    @property
    def in_launches(self) -> float:
        """Seconds in launches, of a call."""
        return sum(launch.seconds for launch in self.launches)

    def costliest(self, most: int | None = None) -> tuple[Timed, ...]:
        """The launches that take most of the time first."""
        return tuple(sorted(self.launches, key=lambda each: -each.seconds)[:most])

    def share(self, launch: Timed) -> float | None:
        """How near a launch is to the machine's limits: 1 is as fast as it can be.

        What lies in caches is read faster than the limit of memory says, so it may be above 1.
        """
        if self.limits is None or not launch.seconds:
            return None
        return self.limits.seconds(launch.flops, launch.moved) / launch.seconds

    # ---- for people ----------------------------------------------------------------------------

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        inside = self.in_launches
        lines = [
            f"{self.name} at {at or 'its only size'}, {counted(self.threads, 'thread')}",
            f"  a call    {time_text(self.seconds)}, the median of {self.calls}",
            f"  launches  {time_text(inside)} in {sum(each.runs for each in self.launches)}",
            f"  the rest  {time_text(max(0.0, self.seconds - inside))}: Python, sizes, host code",
        ]
        if self.chosen:
            lines.append("  a strategy chooses bodies for calls; launches are of the generic ones")
        if self.limits is not None:
            flops, bytes = _rate(self.limits.flops, "flop"), _rate(self.limits.bytes, "B")
            lines.append(f"  at most   {flops}, {bytes} on this machine")
        shown = self.costliest(_SHOWN)
        if shown:
            headers = ("nodes", "kernel", "runs", "time", "of all", "flop/s", "B/s", "of limit")
            rows = [self._row(launch, inside) for launch in shown]
            lines += ["", table(headers, rows, left=2)]
        left = self.launches and self.costliest()[_SHOWN:]
        if left:
            lines.append(f"  and {len(left)} more, {time_text(sum(each.seconds for each in left))}")
        return "\n".join(lines)

    def _row(self, launch: Timed, inside: float) -> tuple[str, ...]:
        share, seconds = self.share(launch), launch.seconds or 1e-9
        part = f"{100 * launch.seconds / inside:.1f} %" if inside else "-"
        return (
            short(launch.source), launch.kernel, str(launch.runs), time_text(launch.seconds), part,
            _rate(launch.flops / seconds, "")[:-2], _rate(launch.moved / seconds, "")[:-2],
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
            "limits": limits and {"flops": limits.flops, "bytes": limits.bytes},
            "launches": [
                {
                    "segment": launch.place[0], "site": launch.place[1], "kernel": launch.kernel,
                    "schedule": launch.schedule, "source": launch.source, "runs": launch.runs,
                    "seconds": launch.seconds, "flops": launch.flops, "moved": launch.moved,
                    "of_limit": self.share(launch),
                }
                for launch in self.launches
            ],
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


def _rate(value: float, unit: str) -> str:
    """130 Gflop/s."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"


def short(source: str) -> str:
    """The nodes of a launch, in a few words: the first one, and how many more."""
    first, *others = source.split(" + ")
    first = first if len(first) <= _NAMED else f"...{first[3 - _NAMED :]}"
    return f"{first} + {len(others)} more" if others else first

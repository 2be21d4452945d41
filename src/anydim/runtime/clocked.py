"""Launch times, measured on a twin of an executable whose launches read a clock.

The twin shares code, constants and limits with the original, but has its own table of code
(`interface.py`). Each entry of that table is a function that reads the clock, runs the kernel
without the interpreter's lock, and reads the clock again. Sites with variants (`variant_tables.py`)
run the generic kernel. The original is unchanged, and every program can be measured: branches,
loops, loaded models. The duration of an empty call is subtracted.

Entry points of devices (`devices/c_entry_points.py`) are timed in the same way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from threading import get_ident
from time import perf_counter_ns as now
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.device_calls import Note
from anydim.runtime.executable import Executable
from anydim.runtime.system_functions import c_library

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
Words = Sequence[Sequence[tuple[int, int]]]
_TRIED = 2000  # empty calls


@dataclass(frozen=True)
class LaunchPart:
    """One thread's part of a launch: elements `first`:`stop` of its range; times in ns.

    `table` and `site` identify the launch: the table of code, and the index in it. `sizes` are the
    sizes passed to its kernel, if the clock records them.
    """

    table: int
    site: int
    thread: int
    first: int
    begin: int
    end: int
    stop: int = 0
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One run of a kernel, on one or several threads."""

    table: int
    site: int
    parts: tuple[LaunchPart, ...]

    @property
    def nanoseconds(self) -> int:
        """From the begin of the first part to the end of the last one; at least 1."""
        ends, begins = [part.end for part in self.parts], [part.begin for part in self.parts]
        return max(ends) - min(begins)


@dataclass(frozen=True)
class DeviceCall:
    """A call of a device's runtime API: the slot of its entry point (`slots.py`) and the arguments.

    The entry of a launch is its number among the program's launches on that device, from 1 on;
    `sizes` are those of its kernel. `done` is begin and end by the device's clock, if it has one.
    """

    device: str
    verb: int
    given: tuple[int, ...]
    sizes: tuple[int, ...]
    begin: int
    end: int
    command: int = -1
    done: tuple[int, int] | None = None


@dataclass(frozen=True)
class Clocked:
    """A measured call: begin and end in ns, its host launches and its device API calls in order.

    `looking` is the time spent on recording.
    """

    begin: int
    end: int
    launches: tuple[Launch, ...]
    device_calls: tuple[DeviceCall, ...] = ()
    looking: int = 0

    @property
    def beside(self) -> int:
        """Nanoseconds outside launches, without the time spent on recording."""
        inside = sum(launch.nanoseconds for launch in self.launches)
        return max(0, self.end - self.begin - inside - self.looking)


class Clock:
    """A measured twin of an executable; not reentrant.

    `words`: for each launch of each table, the numbers of operands and sizes of its kernel; with
    them, sizes are recorded. `waited`: each device API call completes before the next one. `told`:
    read the devices' own clocks where they have one.
    """

    def __init__(
        self, original: Executable[Any], words: Words | None = None, waited: bool = False,
        told: bool = False,
    ) -> None:  # fmt: skip
        self._parts: list[tuple[Any, ...]] = []
        self._device_calls: list[DeviceCall] = []
        devices = {
            name: each.with_clock(_noting(name, self._device_calls), waited)
            for name, each in original.devices.items()
        }
        self._devices = (
            {name: each.device for name, each in original.devices.items()} if told else {}
        )
        self._twin = original.twin(devices)
        self._raised: list[BaseException] = []
        self._spent, self._noting = spent_on_nothing(), spent_on_noting()
        self._kept = []  # functions that the tables refer to
        for number, table in enumerate(self._twin.entries.values()):
            for site, address in enumerate(table.tolist()):
                counts = (0, 0) if words is None else words[number][site]
                function = ENTRY(self._time_entry(number, site, ENTRY(address), *counts))
                table[site] = ctypes.cast(function, ctypes.c_void_p).value or 0
                self._kept.append(function)

    def _time_entry(
        self, table: int, site: int, kernel: Any, operands: int, count: int
    ) -> Callable[..., None]:
        parts, raised = self._parts, self._raised
        words = ctypes.c_int64 * count

        def run(arguments: int, start: int, stop: int, scratch: int) -> None:
            try:
                sizes = tuple(words.from_address(arguments + 8 * operands)) if count else ()
                begin = now()
                kernel(arguments, start, stop, scratch)
                end = now()
                parts.append((table, site, get_ident(), start, begin, end, stop, sizes))
            except BaseException as error:  # from a signal handler; ctypes would ignore it
                raised.append(error)

        return run

    def call(self, given: Mapping[str, Any]) -> Clocked:
        """Call the twin; raises the errors of a call."""
        return self.results(given)[1]

    def results(
        self, given: Mapping[str, Any], into: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Clocked]:
        """Call the twin and return its outputs, in the arrays of `into` where given, and times."""
        self._parts.clear()
        self._device_calls.clear()
        self._raised.clear()
        watched = [each for each in {*self._devices.values()} if each.watch()]
        times = {}
        try:
            begin = now()
            outputs = self._twin(given, into)
            end = now()
        finally:
            for each in watched:
                times[each] = each.unwatch()
            if self._raised:  # a launch that fills a block of size values may not have run
                self._twin.trim()
        if self._raised:
            raise self._raised.pop()
        spent = self._spent
        parts = [
            LaunchPart(*(*part[:5], max(part[4] + 1, part[5] - spent), *part[6:]))
            for part in self._parts
        ]
        launches = _launches(sorted(parts, key=lambda p: p.begin))
        done = {name: times.get(each, ()) for name, each in self._devices.items()}
        device_calls = tuple(
            _with_device_time(each, done.get(each.device, ()), end) for each in self._device_calls
        )
        threads = max(1, len({part.thread for part in parts}))
        looking = len(parts) * self._noting // threads
        return outputs, Clocked(begin, end, tuple(launches), device_calls, looking)


def _with_device_time(call: DeviceCall, times: Sequence[tuple[int, int]], last: int) -> DeviceCall:
    """Add the device time of a command, clamped to the time between its call and `last`."""
    if not 0 <= call.command < len(times):
        return call
    begin, end = (min(max(time, call.begin), last) for time in times[call.command])
    return replace(call, done=(begin, end))


def _noting(device: str, calls: list[DeviceCall]) -> Note:
    """Return a callback that records a device's API calls; it has no reference to the clock."""

    def note(
        verb: int, given: Sequence[int], sizes: Sequence[int], begin: int, end: int, command: int
    ) -> None:
        calls.append(DeviceCall(device, verb, tuple(given), tuple(sizes), begin, end, command))

    return note


def _launches(parts: list[LaunchPart]) -> Iterator[Launch]:
    """Group parts, sorted by begin, into launches, which run one after the other."""
    held: list[LaunchPart] = []
    for part in parts:
        same = held and (held[0].table, held[0].site) == (part.table, part.site)
        if held and not (same and all(other.first != part.first for other in held)):
            yield Launch(held[0].table, held[0].site, tuple(held))
            held = []
        held.append(part)
    if held:
        yield Launch(held[0].table, held[0].site, tuple(held))


@cache
def spent_on_nothing() -> int:
    """Nanoseconds between two readings of the clock around an empty native function.

    The minimum of many, so that no more than the clock's own time is subtracted from a launch.
    """
    nothing = ENTRY(ctypes.cast(c_library().labs, ctypes.c_void_p).value or 0)
    spent = []
    for _ in range(_TRIED):
        begin = now()
        nothing(0, 0, 0, 0)
        spent.append(now() - begin)
    return min(spent)


@cache
def spent_on_noting() -> int:
    """Nanoseconds that recording a part takes outside its own two clock readings."""
    nothing = ENTRY(ctypes.cast(c_library().labs, ctypes.c_void_p).value or 0)
    parts: list[tuple[int, ...]] = []

    def run(arguments: int, start: int, stop: int, scratch: int) -> None:
        begin = now()
        nothing(arguments, start, stop, scratch)
        end = now()
        parts.append((0, 0, get_ident(), start, begin, end, stop))

    function, spent = ENTRY(run), []
    for _ in range(_TRIED):
        begin = now()
        function(0, 0, 0, 0)
        spent.append(now() - begin - (parts[-1][5] - parts[-1][4]))
    return max(0, int(median(spent)) - spent_on_nothing())

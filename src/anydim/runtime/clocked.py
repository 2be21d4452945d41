"""Times of launches: a twin of an executable, each of whose launches goes through a clock.

The twin shares code, constants and limits with the one it is made of and has a table of code of its
own (`interface.py`: entries may be whatever serves). There every word leads to a function that
reads the clock, runs the kernel, without the interpreter's lock, and reads the clock again. Where
there are several bodies for a site (`choices.py`), it is the generic one. So a call that is not
clocked runs what it always ran, and any program can be clocked: branches, loops,
models from a file. What a call of nothing takes that way is subtracted.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from statistics import median
from threading import get_ident
from time import perf_counter_ns as now
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.executable import Executable

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_TRIED = 2000  # calls of nothing


@dataclass(frozen=True)
class Part:
    """What one thread did of a launch, from element `first` of its range on; times in ns.

    `table` and `site` say which launch: the table of code, and the word in it.
    """

    table: int
    site: int
    thread: int
    first: int
    begin: int
    end: int


@dataclass(frozen=True)
class Launch:
    """One run of a kernel, on one or several threads."""

    table: int
    site: int
    parts: tuple[Part, ...]

    @property
    def nanoseconds(self) -> int:
        """From the first part's begin to the last one's end."""
        ends, begins = [part.end for part in self.parts], [part.begin for part in self.parts]
        return max(ends) - min(begins)


@dataclass(frozen=True)
class Clocked:
    """A call: the clock around all of it, in ns, and its launches in order."""

    begin: int
    end: int
    launches: tuple[Launch, ...]


class Clock:
    """A twin of an executable; one thread calls it at a time."""

    def __init__(self, original: Executable[Any]) -> None:
        self._twin = original.twin()
        self._parts: list[tuple[int, int, int, int, int, int]] = []
        self._raised: list[BaseException] = []
        self._spent = spent_on_nothing()
        self._kept = []  # the functions that the tables lead to
        for number, table in enumerate(self._twin.entries.values()):
            for site, address in enumerate(table.tolist()):
                function = ENTRY(self._timed(number, site, ENTRY(address)))
                table[site] = ctypes.cast(function, ctypes.c_void_p).value or 0
                self._kept.append(function)

    def _timed(self, table: int, site: int, kernel: Any) -> Callable[..., None]:
        parts, raised = self._parts, self._raised

        def run(arguments: int, start: int, stop: int, scratch: int) -> None:
            try:
                begin = now()
                kernel(arguments, start, stop, scratch)
                end = now()
                parts.append((table, site, get_ident(), start, begin, end))
            except BaseException as error:  # a signal: ctypes would drop it
                raised.append(error)

        return run

    def call(self, given: Mapping[str, Any]) -> Clocked:
        """Call the twin; errors are those of a call."""
        return self.results(given)[1]

    def results(
        self, given: Mapping[str, Any], into: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Clocked]:
        """The same with the outputs of the call, in arrays of the caller where `into` has them."""
        self._parts.clear()
        begin = now()
        outputs = self._twin(given, into)
        end = now()
        if self._raised:
            raise self._raised.pop()
        spent = self._spent
        parts = [Part(*part[:5], max(part[4], part[5] - spent)) for part in self._parts]
        launches = _launches(sorted(parts, key=lambda p: p.begin))
        return outputs, Clocked(begin, end, tuple(launches))


def _launches(parts: list[Part]) -> Iterator[Launch]:
    """Parts in the order of their begin, as launches: those run one after the other."""
    held: list[Part] = []
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
    """Nanoseconds between two looks at the clock around a native function that does nothing."""
    system = ctypes.CDLL(None) if os.name == "posix" else ctypes.cdll.msvcrt
    nothing = ENTRY(ctypes.cast(system.labs, ctypes.c_void_p).value or 0)
    spent = []
    for _ in range(_TRIED):
        begin = now()
        nothing(0, 0, 0, 0)
        spent.append(now() - begin)
    return int(median(spent))

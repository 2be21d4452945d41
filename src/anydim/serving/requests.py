"""Queued requests, and the lines (priority queues) that hold them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Any, Protocol

from anydim.runtime.program.batches.item import Form, Item

WAITING, RUNNING, DONE, CANCELLED = range(4)

_NUMBERS = itertools.count()


class Sink(Protocol):
    """Receives finished requests, each with `result` or `error` set."""

    def deliver(self, requests: list[Request]) -> None:
        """Pass on outcomes; called by the thread that ran the requests, so it must not block."""


class Request:
    """A request from its arrival to its outcome.

    `due` orders requests of equal priority. `alone` are the bytes of a call with it alone, `held`
    the bytes charged to the memory limit while it lives. `deadline` is a time of
    `time.perf_counter`. Results are charged `keep` times until they are released.
    """

    __slots__ = (
        "alone", "arrived", "deadline", "due", "ended", "error", "future", "held", "item", "keep",
        "key", "lane", "number", "priority", "result", "seconds", "served", "sink", "started",
        "state", "step",
    )  # fmt: skip

    def __init__(
        self, served: Any, item: Item, alone: int, sink: Sink, future: Any, priority: int,
        arrived: float, due: float, deadline: float | None, keep: int,
    ) -> None:  # fmt: skip
        self.served, self.sink, self.future, self.alone = served, sink, future, alone
        self.item: Any = item  # an Item; None once it ended
        self.priority, self.arrived, self.due, self.deadline = priority, arrived, due, deadline
        self.keep, self.state = keep, WAITING
        self.lane: Any = None
        self.held = item.input_bytes + keep * item.output_bytes
        self.result: Any = None
        self.error: BaseException | None = None
        self.key: Key = (served.form, item.key)
        self.started = self.ended = self.seconds = 0.0  # `seconds` are predicted
        self.step = 0  # of `order.py`
        self.number = next(_NUMBERS)

    def entry(self) -> Entry:
        """Return its heap entry. Not stored: the cycle would keep arrays until a collection."""
        return -self.priority, self.due, self.number, self


Entry = tuple[int, float, int, Request]
Key = tuple[Form, Hashable]
Place = tuple[Key, int]


class Head:
    """The first request of a line."""

    __slots__ = ("due", "entry", "place", "request", "step")

    def __init__(self, place: Place, entry: Entry) -> None:
        self.place, self.entry, self.request = place, entry, entry[3]
        self.step, self.due = place[1], entry[1]


class Lines:
    """Queued requests; a line holds those that may share a call and cost about the same.

    A cancelled request stays in its line until it is at the front, or until half of all entries
    are cancelled.
    """

    def __init__(self) -> None:
        self._lines: dict[Key, dict[int, list[Entry]]] = {}
        self._entries = 0
        self.count = 0  # requests that wait

    def add(self, request: Request) -> None:
        """Queue a request, again or for the first time; its position depends on itself alone."""
        line = self._lines.setdefault(request.key, {}).setdefault(request.step, [])
        heapq.heappush(line, request.entry())
        self._entries += 1
        self.count += 1

    def drop(self) -> None:
        """Count a cancelled request; rebuild the lines once most entries are cancelled."""
        self.count -= 1
        if self._entries > 2 * self.count + 16:
            waiting = self.waiting()
            self._lines, self._entries, self.count = {}, 0, 0
            for request in waiting:
                self.add(request)

    def heads(self) -> list[Head]:
        """Return the front request of each line that has the highest priority queued."""
        if not self.count:
            return []
        if self.count == self._entries == 1:
            return [self._only()]
        found: list[Head] = []
        for key in list(self._lines):
            lines = self._lines[key]
            for step in list(lines):
                line = lines[step]
                while line and line[0][3].state != WAITING:
                    heapq.heappop(line)
                    self._entries -= 1
                if line:
                    found.append(Head((key, step), line[0]))
                else:
                    del lines[step]
            if not lines:
                del self._lines[key]
        if len(found) < 2:
            return found
        first = min(head.entry[0] for head in found)
        return [head for head in found if head.entry[0] == first]

    def _only(self) -> Head:
        """The only entry, which waits."""
        return next(
            Head((key, step), line[0])
            for key, lines in self._lines.items() for step, line in lines.items() if line
        )  # fmt: skip

    def pop(self, place: Place) -> Request | None:
        """Take the front request of a line, or else of the cheapest line that shares its calls;
        None if these are empty."""
        if not self.count:
            return None
        key, step = place
        lines = self._lines.get(key, {})
        found = self._pop_waiting(lines.get(step))
        return found or next(
            filter(None, map(self._pop_waiting, map(lines.get, sorted(lines)))), None
        )

    def _pop_waiting(self, line: list[Entry] | None) -> Request | None:
        while line:
            request = heapq.heappop(line)[3]
            self._entries -= 1
            if not self._entries:
                self._lines.clear()
            if request.state == WAITING:
                self.count -= 1
                return request
        return None

    def waiting(self) -> list[Request]:
        """Return all queued requests, in no order."""
        lines = (line for each in self._lines.values() for line in each.values())
        every = (entry[3] for line in lines for entry in line)
        return [request for request in every if request.state == WAITING]

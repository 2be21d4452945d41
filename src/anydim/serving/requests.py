"""Requests that wait, and the lines that they wait in."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Any, Protocol

from anydim.serving.item import Form, Item

WAITING, RUNNING, DONE, CANCELLED = range(4)

_NUMBERS = itertools.count()


class Sink(Protocol):
    """Takes the outcomes of requests: `result` or `error` of each is set."""

    def deliver(self, requests: list[Request]) -> None:
        """Called by the thread that ran them; must not block."""


class Request:
    """A request from its arrival to its outcome.

    `due` orders requests of equal priority; `alone` are the bytes of its own call, `held` those
    that count against the limit as long as it lives. `deadline` is a time of `time.perf_counter`;
    `keep` times, results count until they are released.
    """

    __slots__ = (
        "alone", "arrived", "deadline", "due", "ended", "error", "future", "held", "item", "keep",
        "lane", "number", "priority", "result", "seconds", "served", "sink", "started", "state",
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
        self.started = self.ended = self.seconds = 0.0  # `seconds` are predicted
        self.number = next(_NUMBERS)

    def entry(self) -> Entry:
        """Its place in a line. Not kept: a cycle would keep arrays until they are collected."""
        return -self.priority, self.due, self.number, self


Entry = tuple[int, float, int, Request]
Key = tuple[Form, Hashable]


class Lines:
    """Requests in lines of those that may share a call; the first ones are known at once.

    A request that was cancelled stays in its line until it is the first, or until half of the
    entries are such.
    """

    def __init__(self) -> None:
        self._lines: dict[Key, list[Entry]] = {}
        self._entries = 0
        self.count = 0  # requests that wait

    def add(self, key: Key, request: Request) -> None:
        """Let a request wait, or wait on; its order depends on itself alone."""
        heapq.heappush(self._lines.setdefault(key, []), request.entry())
        self._entries += 1
        self.count += 1

    def drop(self) -> None:
        """Note that a request was cancelled."""
        self.count -= 1
        if self._entries > 2 * self.count + 16:
            for key, line in list(self._lines.items()):
                kept = [entry for entry in line if entry[3].state == WAITING]
                heapq.heapify(kept)
                self._lines[key] = kept
                if not kept:
                    del self._lines[key]
            self._entries = self.count

    def first(self) -> Key | None:
        """The line of the request that is next; None if none waits."""
        best: Key | None = None
        least: Entry | None = None
        for key in list(self._lines):
            line = self._lines[key]
            while line and line[0][3].state != WAITING:
                heapq.heappop(line)
                self._entries -= 1
            if not line:
                del self._lines[key]
            elif least is None or line[0] < least:
                best, least = key, line[0]
        return best

    def pop(self, key: Key) -> Request | None:
        """Remove the first waiting request of a line; None if none waits there."""
        line = self._lines.get(key)
        while line:
            request = heapq.heappop(line)[3]
            self._entries -= 1
            if request.state == WAITING:
                self.count -= 1
                return request
        return None

    def waiting(self) -> list[Request]:
        """The requests that wait, in no order."""
        every = (entry[3] for line in self._lines.values() for entry in line)
        return [request for request in every if request.state == WAITING]

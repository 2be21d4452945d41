"""Lanes (threads with their lines), groups of requests, and served models."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from anydim.runtime.program.batches.item import Form
from anydim.serving.measures import Measures
from anydim.serving.requests import Head, Lines, Request

OWED = 3.0  # times its predicted time, cheaper requests run before one that is due


class Served:
    """A served model: its name, its form, counters and measurements."""

    def __init__(self, name: str, form: Form) -> None:
        self.name, self.form = name, form
        self.measures = Measures()
        self.waiting = self.running = 0  # requests
        self.is_closed = False
        self.pause_ends = 0.0  # when threads that should not wait may call it again


class Group:
    """Requests of one call, which a thread of `lane` runs, with its bytes and predicted seconds.

    `work` are the seconds at the rates of the reference machine, before scaling by measurements.
    """

    __slots__ = ("bytes", "form", "lane", "requests", "seconds", "step", "work")

    def __init__(self, lane: Lane, form: Form, requests: list[Request], bytes: int) -> None:
        self.lane, self.form, self.requests, self.bytes = lane, form, requests, bytes
        self.step = requests[0].step
        first, ratio = requests[0].item, form.costs.ratio
        self.work = form.overhead(first) + sum([request.item.own for request in requests])
        self.seconds = self.work * ratio


class Lane:
    """Lines of requests and the threads that serve them.

    The cheapest request is next. One that is due passes cheaper ones, if none of them has waited
    for a longer call before, or if cheaper ones ran for `OWED` times its time since it was due. So
    a request waits for at most one longer call, unless cheap ones fill the lane; and then, the
    others get a quarter of its time.
    """

    def __init__(self, lock: threading.Lock, threads: int, nice: int) -> None:
        self.lines, self.threads, self.nice = Lines(), threads, nice
        self.wake = threading.Condition(lock)
        self.idle = 0  # threads that wait
        self.calls: list[Group] = []  # that run
        self.reserved = 0  # bytes that its next call waits for
        self._ended: dict[int, float] = {}  # when the last call of a step ended
        self._owed = 0.0  # seconds of calls since a costlier request was due
        self._is_passed = False  # whether it is, when a cheaper one is chosen

    def first(self, now: float) -> Head | None:
        """Choose the request that runs next; None if the lines are empty."""
        heads, self._is_passed = self.lines.heads(), False
        if len(heads) < 2:
            return heads[0] if heads else None
        cheapest = min(heads, key=lambda head: (head.step, head.entry))
        due = min(heads, key=lambda head: head.entry)
        if due.due > now or due.step <= cheapest.step:
            return cheapest
        owed = self._owed >= OWED * due.request.seconds
        self._is_passed = not owed and self._is_delayed(heads, due.step)
        return cheapest if self._is_passed else due

    def _is_delayed(self, heads: Sequence[Head], step: int) -> bool:
        """Whether a queued request below a step has already waited for a longer call."""
        return any(
            head.request.arrived < ended
            for head in heads if head.step < step
            for longer, ended in self._ended.items() if longer > head.step
        )  # fmt: skip

    def is_behind(self, step: int) -> bool:
        """Whether a queued request has already waited for a call above a step."""
        ended = max((each for longer, each in self._ended.items() if longer > step), default=0.0)
        return ended > 0 and any(head.request.arrived < ended for head in self.lines.heads())

    def begins(self, group: Group) -> None:
        """Account for the start of a call with requests of this lane."""
        self._owed = self._owed + group.seconds if self._is_passed else 0.0
        self._is_passed = False

    def ends(self, group: Group, now: float) -> None:
        """Account for the end of a call with requests of this lane."""
        self._ended[group.step] = now

"""What an engine keeps of models, threads and calls."""

from __future__ import annotations

import threading

from anydim.serving.item import Form
from anydim.serving.measures import Measures
from anydim.serving.requests import Lines, Request


class Served:
    """A model under a name, with what was measured of it."""

    def __init__(self, name: str, form: Form) -> None:
        self.name, self.form = name, form
        self.measures = Measures()
        self.waiting = self.running = 0  # requests
        self.is_closed = False
        self.pause_ends = 0.0  # when threads that should not wait may call it again


class Lane:
    """Lines of requests and the threads that serve them."""

    def __init__(self, lock: threading.Lock, threads: int, nice: int) -> None:
        self.lines, self.threads, self.nice = Lines(), threads, nice
        self.wake = threading.Condition(lock)
        self.idle = 0  # threads that wait
        self.calls = 0  # that run
        self.reserved = 0  # bytes that its next call waits for


class Group:
    """Requests that run in one call, and its bytes."""

    __slots__ = ("bytes", "form", "lane", "requests")

    def __init__(self, lane: Lane, form: Form, requests: list[Request], bytes: int) -> None:
        self.lane, self.form, self.requests, self.bytes = lane, form, requests, bytes

"""The background thread that compiles variants, shared by all models of the process."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

LOG = logging.getLogger("anydim.variants")
_REST = 0.001  # seconds


class Pollable(Protocol):
    """An object that may request variants when polled."""

    def poll(self) -> Iterable[Future[Any]]: ...


class _Background:
    """One thread for all models of the process; it exits when no work is left."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pollables: list[Pollable] = []
        self._runs = False

    def __call__(self, pollable: Pollable) -> None:
        if self._process != os.getpid():
            self._start()
        with self._lock:
            if pollable not in self._pollables:
                self._pollables.append(pollable)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="anydim-adaptive", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._pollables:
                    self._runs = False
                    return
                pollable = self._pollables.pop(0)
            try:
                for made in list(_slowly(pollable.poll())):
                    made.result()
            except Exception:  # a later call retries; meanwhile the generic kernels serve
                LOG.exception("variants are not compiled: the background thread caught an error")


def _slowly(orders: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Yield orders with a pause after each.

    A thread that releases the interpreter lock only briefly reacquires it before a waiting call
    wakes up: without the pause, calls take 5 ms longer while many variants are ordered.
    """
    for made in orders:
        yield made
        time.sleep(_REST)


run_in_background: Callable[[Pollable], None] = _Background()

"""The thread that has bodies made beside calls, for all models of the process."""

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


class Looking(Protocol):
    """What wants bodies now and then."""

    def look(self) -> Iterable[Future[Any]]: ...


class _Aside:
    """One thread for all models of the process; it lives while there is something to do."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._wanted: list[Looking] = []
        self._runs = False

    def __call__(self, wanted: Looking) -> None:
        if self._process != os.getpid():
            self._start()
        with self._lock:
            if wanted not in self._wanted:
                self._wanted.append(wanted)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="anydim-adaptive", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._runs = False
                    return
                wanted = self._wanted.pop(0)
            try:
                for made in list(_slowly(wanted.look())):
                    made.result()
            except Exception:  # another call wakes it again, and the generic bodies serve
                LOG.exception("no bodies are looked for at this time")


def _slowly(asked: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Orders with a rest after each.

    A thread that lets go of the interpreter for a moment only has it again before a call that waits
    for it wakes up: calls would take 5 ms longer while there is much to order.
    """
    for made in asked:
        yield made
        time.sleep(_REST)


aside: Callable[[Looking], None] = _Aside()

"""A session's profile: a file of Chrome trace events, named and laid out as onnxruntime's are."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anydim.base.fork_locks import fork_lock
from anydim.runtime.clocked import Clock
from anydim.runtime.program.callable_program import CallableProgram

Call = Callable[..., dict[str, Any]]


class Profile:
    """Events of a session; times in microseconds from `start_ns` of `time.monotonic_ns`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.start_ns = time.monotonic_ns()
        self._ahead = self.start_ns - time.perf_counter_ns()  # offset of the clock of launches
        self._events: list[dict[str, Any]] = []
        self._open = True
        self._lock = fork_lock(self, "_lock")

    @contextmanager
    def event(self, category: str, name: str, **about: object) -> Iterator[None]:
        """Add an event that times the `with` block."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(category, name, begin, time.monotonic_ns(), **about)

    def add(self, category: str, name: str, begin_ns: int, end_ns: int, **about: object) -> None:
        """Add an event; begin and end are values of `time.monotonic_ns`."""
        self._append(category, name, threading.get_ident(), begin_ns, end_ns, **about)

    def _append(
        self, category: str, name: str, thread: int, begin_ns: int, end_ns: int, **about: object
    ) -> None:
        self._events.append({
            "cat": category, "pid": os.getpid(), "tid": thread,
            "ts": (begin_ns - self.start_ns) // 1000, "dur": (end_ns - begin_ns) // 1000,
            "ph": "X", "name": name, "args": {key: str(value) for key, value in about.items()},
        })  # fmt: skip

    def clock_call(self, model: CallableProgram) -> Call:
        """Wrap a model's call so that each launch adds an event, as onnxruntime does for nodes."""
        clock, lock = Clock(model.executable), threading.Lock()
        sites = [segment.sites for segment in model.program.segments]

        def call(given: Mapping[str, Any], into: Mapping[str, Any] | None = None) -> dict[str, Any]:
            with lock:
                outputs, found = clock.results(given, into)
            for launch in found.launches:
                site = sites[launch.table][launch.site]
                nodes = site.source.partition(": ")[2] or site.source
                for part in launch.parts:
                    self._append(
                        "Node", f"{nodes or site.kernel}_kernel_time", part.thread,
                        part.begin + self._ahead, part.end + self._ahead,
                        provider="CPUExecutionProvider", op_name=site.kernel,
                        schedule=site.schedule,
                    )  # fmt: skip
            return outputs

        return call

    def end(self) -> str:
        """Write the file and return its name; '' if it was written before."""
        with self._lock:
            if not self._open:
                return ""
            self._open = False
        moment = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(moment))
        path = f"{self.prefix}_{stamp}_{int(moment * 1000) % 1000:03}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(sorted(self._events, key=lambda event: event["ts"]), file, indent=1)
        return path

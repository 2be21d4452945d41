"""Worker processes that compile variants, shared by all models of this process.

If a worker dies, its order is retried once on another worker. The first death causes a warning, and
so does a worker that cannot be started; after several deaths in a row, workers pause for a minute.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any, Protocol

from anydim.base import settings
from anydim.base.records import dataclass
from anydim.compiler.variants.child_process import beginning
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.variant_tables import Key, Sizes, Span

_MAX_DEATHS = 3  # in a row
_PAUSE = 60.0  # seconds of pause after that
_MAX_SECONDS = 120.0  # for one variant
_BETWEEN = 30.0  # seconds between polls for the exit of an idle process
_SLEPT = "code 0"  # exit of a process after `IDLE` seconds
_MAIN = "import sys; sys.path[:] = {}; from anydim.compiler.variants.worker import main; main(tied)"


@dataclass(frozen=True)
class Order:
    """A request for a variant; `most` is its maximum time ratio to the generic kernel.

    The search takes `budget` seconds. Results must have the generic bits, or, with `bits` "any",
    those of another order of summation; schedules `found` at other sizes of the recipe are tried
    instead of neighbours. With `most` None, the generic schedule or `schedule` is compiled for
    these sizes without measuring.

    With `samples` (sizes with weights), searches for a general schedule instead and returns no
    code; `guards` are sizes that it must not slow down. `threads` execute a launch.
    """

    recipe: Recipe
    sizes: Key
    target: str
    most: float | None = None
    schedule: str = ""
    budget: float = 4.0
    samples: tuple[tuple[Sizes, float], ...] = ()
    guards: tuple[Sizes, ...] = ()
    threads: int = 1
    bits: str = ""
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledCode:
    """A compiled variant, as object files, and its launch parameters.

    `extent` names the function that computes the parallel range of a span; '' if the launch has it.
    """

    schedule: str
    symbol: str
    parallel: int
    grain: int
    scratch: int
    objects: tuple[bytes, ...]
    extent: str = ""


@dataclass(frozen=True)
class Reply:
    """The result of an order.

    `tried` are schedules with their time ratio to the generic kernel, None for different bits; the
    best one is last, with the ratio `ratio`. `bug` is the text of an InternalError.
    """

    made: CompiledCode | None = None
    ratio: float | None = None
    tried: tuple[tuple[str, float | None], ...] = ()
    seconds: float = 0.0
    problem: str = ""
    bug: str = ""


class Team(Protocol):
    """Compiles variants, `count` at once."""

    @property
    def count(self) -> int: ...

    def submit(self, order: Order) -> Future[Reply]: ...


class Workers:
    """At most `count` processes, started on demand.

    `polite` ones run at idle priority, for orders that no caller waits for.
    """

    def __init__(self, count: int, polite: bool = False) -> None:
        self._polite, self.count = polite, count
        self._orders: queue.SimpleQueue[tuple[Order | None, Future[Reply]]] = queue.SimpleQueue()
        self._deaths = 0
        self._rests_until = 0.0
        self._said = False
        self._processes: list[subprocess.Popen[bytes]] = []
        for number in range(count):
            name = f"anydim-variants-{number}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The running processes."""
        return [process for process in self._processes if process.poll() is None]

    def close(self) -> None:
        """Kill the processes; they are started again on demand."""
        for process in self.processes():
            process.kill()

    def warm(self) -> None:
        """Start a process in advance."""
        self._orders.put((None, Future()))

    def submit(self, order: Order) -> Future[Reply]:
        """Submit an order."""
        promised: Future[Reply] = Future()
        if time.monotonic() < self._rests_until:
            promised.set_result(Reply(problem="worker processes died or cannot be started"))
        else:
            self._orders.put((order, promised))
        return promised

    def _serve(self) -> None:
        """The loop of the thread of one worker."""
        process: subprocess.Popen[bytes] | None = None
        while True:
            try:
                order, promised = self._orders.get(timeout=_BETWEEN if process else None)
            except queue.Empty:
                if process is not None and process.poll() is not None:
                    _forget(process)
                    process = None
                continue
            if promised.set_running_or_notify_cancel():
                reply, process = self._reply(order, process)
                promised.set_result(reply)
            del order, promised  # release references while this thread waits

    def _reply(
        self, order: Order | None, process: subprocess.Popen[bytes] | None
    ) -> tuple[Reply, subprocess.Popen[bytes] | None]:
        """Execute an order; return the reply and the process for the next one. Never raises."""
        problem = "no worker process could be started"
        for _ in range(2):  # the first process may have exited idle, or died for another reason
            try:
                if process is None or process.poll() is not None:
                    _forget(process)
                    process = self._start_process()
                if process is None or order is None:
                    break
                made = reply_of(_ask_worker(process, order))
                self._deaths = 0
                if made.bug:
                    self._say(f"{made.bug}\n  calls continue with the existing code")
                return made, process
            except Exception as error:  # the caller would wait forever for its reply
                words = _last_words(process, error)
                problem = f"a worker process died ({words})"
                _forget(process)
                process = None
                if words != _SLEPT:
                    self._died()
                    self._say(f"{problem}: calls continue with the existing code")
        return Reply(problem=problem), process

    def _start_process(self) -> subprocess.Popen[bytes] | None:
        if time.monotonic() < self._rests_until:
            return None
        begun = beginning(os.getpid(), self._polite)
        try:
            process = subprocess.Popen(  # this thread lives as long as its process
                [sys.executable, "-c", begun + _MAIN.format([str(folder) for folder in sys.path])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={**os.environ, **variables()}, close_fds=True,
            )  # fmt: skip
        except OSError as error:
            self._rests_until = time.monotonic() + _PAUSE
            self._say(f"no worker process can be started ({error}): models run their generic code")
            return None
        self._processes = [*self.processes(), process]
        return process

    def _died(self) -> None:
        """Count a death; after several in a row, pause."""
        self._deaths += 1
        if self._deaths >= _MAX_DEATHS:
            self._deaths, self._rests_until = 0, time.monotonic() + _PAUSE

    def _say(self, what: str) -> None:
        """Warn once. Suppresses warnings as errors, which no caller could catch."""
        if not self._said:
            self._said = True
            with contextlib.suppress(Warning):
                warnings.warn(what, RuntimeWarning, stacklevel=1)


def _last_words(process: subprocess.Popen[bytes] | None, error: Exception) -> str:
    """The exit code of a process, or the error."""
    try:
        code = None if process is None else process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = None
    return f"code {code}" if code is not None else str(error) or type(error).__name__


def _forget(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process and close its pipes."""
    if process is not None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def request_of(order: Order) -> dict[str, Any]:
    """The request to a worker process."""
    key = order.sizes
    low, high = (key.low, key.high) if isinstance(key, Span) else (key, None)
    return {
        "recipe": order.recipe.text, "sizes": low, "high": high, "target": order.target,
        "most": order.most, "schedule": order.schedule, "budget": order.budget,
        "samples": order.samples, "guards": order.guards, "threads": order.threads,
        "bits": order.bits, "found": order.found,
    }  # fmt: skip


def _ask_worker(process: subprocess.Popen[bytes], order: Order) -> Mapping[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request_of(order)).encode() + b"\n")
    process.stdin.flush()
    late = threading.Timer(_MAX_SECONDS, process.kill)
    late.daemon = True
    late.start()
    try:
        line = process.stdout.readline()
    finally:
        late.cancel()
    if not line:
        raise OSError("it ended")
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no answer")
    return found


def reply_of(found: Mapping[str, Any]) -> Reply:
    """Parse a reply; raises ValueError or KeyError for invalid ones."""
    made, body = None, found["found"]
    if body is not None:
        objects = tuple(base64.b64decode(each, validate=True) for each in body["objects"])
        if hashlib.sha256(b"".join(objects)).hexdigest() != body["digest"]:
            raise ValueError("its objects do not match their digest")
        parallel, grain, scratch = (int(body[name]) for name in ("parallel", "grain", "scratch"))
        words = str(body["schedule"]), str(body["symbol"])
        made = CompiledCode(*words, parallel, grain, scratch, objects, str(body["extent"]))
    tried = tuple((str(row["schedule"]), row["ratio"]) for row in found["tried"])
    ratio = tried[-1][1] if tried else None
    problem, bug = (str(found.get(name, "")) for name in ("problem", "bug"))
    return Reply(made, ratio, tried, float(found["seconds"]), problem, bug)


def variables() -> dict[str, str]:
    """The settings of this process as environment variables of its children."""
    rows = ((knob.variable, settings.get(knob.name)) for knob in settings.KNOBS)
    return {name: str(int(value) if isinstance(value, bool) else value) for name, value in rows}


@cache
def _of(process: int, polite: bool, count: int) -> Workers:
    return Workers(count, polite)


def workers(polite: bool, count: int = 0) -> Workers:
    """The workers of this process, `count` or the configured number; a forked child has its own."""
    return _of(os.getpid(), polite, count or max(1, settings.compile_workers))

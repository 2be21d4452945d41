"""Worker processes that make bodies, shared by all models of this process.

A worker that dies costs what it was making, if another one dies of it too. The first death is
warned of, and so is it where none can be started at all; after some in a row nothing is asked of
them for a minute.
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
from anydim.program.recipe import Recipe
from anydim.runtime.variant_tables import Key, Sizes, Span
from anydim.variants.child_process import beginning

_MOST_DEATHS = 3  # in a row
_PAUSE = 60.0  # seconds after so many, without a process
_MOST_SECONDS = 120.0  # for one body
_BETWEEN = 30.0  # seconds from one look at an idle process to the next: whether it has ended
_SLEPT = "code 0"  # how a process ends that nobody asked for long
_MAIN = "import sys; sys.path[:] = {}; from anydim.variants.worker import main; main(tied)"


@dataclass(frozen=True)
class Order:
    """What to make: `most` is the share of the generic body's time that a body may take.

    It is searched for, for `budget` seconds, and has the generic bits, or with `bits` "any" what
    another order of sums makes of them; what was `found` at other sizes of the recipe is tried
    instead of neighbours. With None, the generic schedule or `schedule` is made for these sizes and
    not measured.

    With `samples`, sizes with their weights, a schedule for all sizes is searched for instead, and
    no code comes back; `guards` are sizes that it may not cost much. `threads` serve a launch.
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
class Made:
    """A body that was made, as objects, and how it is launched.

    `extent` is the function that says the parallel range of one for a span; empty: the launch does.
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
    """What became of an order.

    `tried` are schedules with their share of the generic body's time, None for one that gave other
    bits; the best one is the last. `ratio` is its share. `bug` is the text of an InternalError.
    """

    made: Made | None = None
    ratio: float | None = None
    tried: tuple[tuple[str, float | None], ...] = ()
    seconds: float = 0.0
    problem: str = ""
    bug: str = ""


class Team(Protocol):
    """Who makes bodies: so many at once."""

    @property
    def count(self) -> int: ...

    def ask(self, order: Order) -> Future[Reply]: ...


class Workers:
    """So many processes at most, started when they are asked for.

    `polite` ones leave the cores to whoever else wants them: nobody waits for what they make.
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
        """Those that run."""
        return [process for process in self._processes if process.poll() is None]

    def close(self) -> None:
        """End the processes; they are started again when they are asked for."""
        for process in self.processes():
            process.kill()

    def warm(self) -> None:
        """Start a process now that is needed soon."""
        self._orders.put((None, Future()))

    def ask(self, order: Order) -> Future[Reply]:
        """Have a body made."""
        promised: Future[Reply] = Future()
        if time.monotonic() < self._rests_until:
            promised.set_result(Reply(problem="processes that make code died, or do not start"))
        else:
            self._orders.put((order, promised))
        return promised

    def _serve(self) -> None:
        """The life of the thread of one worker."""
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
            del order, promised  # this thread may wait for long, and would keep what they hold

    def _reply(
        self, order: Order | None, process: subprocess.Popen[bytes] | None
    ) -> tuple[Reply, subprocess.Popen[bytes] | None]:
        """What becomes of an order, and the process for the next one. Never raises."""
        problem = "no worker process could be started"
        for _ in range(2):  # the first one may have slept too long, or died of something else
            try:
                if process is None or process.poll() is not None:
                    _forget(process)
                    process = self._started()
                if process is None or order is None:
                    break
                made = reply_of(_answered(process, order))
                self._deaths = 0
                if made.bug:
                    self._say(f"{made.bug}\n  calls go on with the code that is there")
                return made, process
            except Exception as error:  # whoever waits for the reply would wait without end
                words = _last_words(process, error)
                problem = f"a process that made code for sizes died ({words})"
                _forget(process)
                process = None
                if words != _SLEPT:
                    self._died()
                    self._say(f"{problem}: calls go on with the code that is there")
        return Reply(problem=problem), process

    def _started(self) -> subprocess.Popen[bytes] | None:
        if time.monotonic() < self._rests_until:
            return None
        begun = beginning(os.getpid(), self._polite)
        try:
            process = subprocess.Popen(  # by this thread, which lives as long as its process does
                [sys.executable, "-c", begun + _MAIN.format([str(folder) for folder in sys.path])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={**os.environ, **variables()}, close_fds=True,
            )  # fmt: skip
        except OSError as error:
            self._rests_until = time.monotonic() + _PAUSE
            self._say(
                f"no process for making code can be started ({error}): models run their generic "
                "code"
            )
            return None
        self._processes = [*self.processes(), process]
        return process

    def _died(self) -> None:
        """One process more: after some in a row there are none for a while."""
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            self._deaths, self._rests_until = 0, time.monotonic() + _PAUSE

    def _say(self, what: str) -> None:
        """Warn, once. Where warnings are errors, nobody is there to catch this one."""
        if not self._said:
            self._said = True
            with contextlib.suppress(Warning):
                warnings.warn(what, RuntimeWarning, stacklevel=1)


def _last_words(process: subprocess.Popen[bytes] | None, error: Exception) -> str:
    """What ended a process, as far as this one knows."""
    try:
        code = None if process is None else process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = None
    return f"code {code}" if code is not None else str(error) or type(error).__name__


def _forget(process: subprocess.Popen[bytes] | None) -> None:
    """End a process, and close what led to it."""
    if process is not None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def asked(order: Order) -> dict[str, Any]:
    """What a worker process is asked."""
    key = order.sizes
    low, high = (key.low, key.high) if isinstance(key, Span) else (key, None)
    return {
        "recipe": order.recipe.text, "sizes": low, "high": high, "target": order.target,
        "most": order.most, "schedule": order.schedule, "budget": order.budget,
        "samples": order.samples, "guards": order.guards, "threads": order.threads,
        "bits": order.bits, "found": order.found,
    }  # fmt: skip


def _answered(process: subprocess.Popen[bytes], order: Order) -> Mapping[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(asked(order)).encode() + b"\n")
    process.stdin.flush()
    late = threading.Timer(_MOST_SECONDS, process.kill)
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
    """An answer as records; raises ValueError and KeyError for what is none."""
    made, body = None, found["found"]
    if body is not None:
        objects = tuple(base64.b64decode(each, validate=True) for each in body["objects"])
        if hashlib.sha256(b"".join(objects)).hexdigest() != body["digest"]:
            raise ValueError("its objects are not what it made")
        parallel, grain, scratch = (int(body[name]) for name in ("parallel", "grain", "scratch"))
        words = str(body["schedule"]), str(body["symbol"])
        made = Made(*words, parallel, grain, scratch, objects, str(body["extent"]))
    tried = tuple((str(row["schedule"]), row["ratio"]) for row in found["tried"])
    ratio = tried[-1][1] if tried else None
    problem, bug = (str(found.get(name, "")) for name in ("problem", "bug"))
    return Reply(made, ratio, tried, float(found["seconds"]), problem, bug)


def variables() -> dict[str, str]:
    """The settings of this process as its children read them."""
    rows = ((knob.variable, settings.get(knob.name)) for knob in settings.KNOBS)
    return {name: str(int(value) if isinstance(value, bool) else value) for name, value in rows}


@cache
def _of(process: int, polite: bool, count: int) -> Workers:
    return Workers(count, polite)


def workers(polite: bool, count: int = 0) -> Workers:
    """Those of this process, so many, or as the settings say; a child of a fork has its own."""
    return _of(os.getpid(), polite, count or max(1, settings.compile_workers))

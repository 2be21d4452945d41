"""What each engine's process does: it reads commands as lines of JSON and answers with seconds.

{"read": [tokens]}           reads a prompt, and forgets it
{"join": [[tokens], ...]}    reads prompts, whose rows stay
{"steps": n}                 n tokens more for each of these rows
{"leave": true}              ends them
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Protocol


class Engine(Protocol):
    """Rows of a model. Tokens of steps are the likeliest ones, or any: no row stops."""

    def read(self, prompt: list[int]) -> None: ...

    def join(self, prompts: Sequence[list[int]]) -> None: ...

    def step(self, count: int) -> None: ...

    def leave(self) -> None: ...


def resident() -> dict[str, float]:
    """Megabytes of the process: resident, of these not of files, and the most it ever had."""
    with open("/proc/self/status", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    names = (("rss", "VmRSS"), ("anon", "RssAnon"), ("most", "VmHWM"))
    return {name: int(fields[key].split()[0]) * 1024 / 1e6 for name, key in names}


def serve(engine: Engine) -> None:
    """Answer commands until there are no more."""
    engine.read([5, 6, 7])
    print(json.dumps({"ready": True, "cpu": time.process_time(), **resident()}), flush=True)
    for line in sys.stdin:
        ((name, given),) = json.loads(line).items()
        call = {"read": engine.read, "join": engine.join, "steps": engine.step}.get(name)
        start, used = time.perf_counter(), time.process_time()
        call(given) if call is not None else engine.leave()
        wall, cpu = time.perf_counter() - start, time.process_time() - used
        last = getattr(engine, "last", None)  # tokens, of engines that tell
        told = {"last": last} if isinstance(last, list) else {}
        print(json.dumps({"wall": wall, "cpu": cpu, **resident(), **told}), flush=True)

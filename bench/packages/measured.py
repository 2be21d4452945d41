"""What a program of this folder prints: its results and seconds, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any


def measured(make: Callable[[], Any], use: Callable[[Any], list[object]]) -> None:
    """Make an engine and use it as often as the first argument says; print what came."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    start = perf_counter()
    engine = make()
    made = perf_counter() - start
    results = use(engine)
    first = perf_counter() - start - made
    seconds = []
    for _ in range(rounds - 1):
        begin = perf_counter()
        use(engine)
        seconds.append(perf_counter() - begin)
    runs_on = sys.modules["onnxruntime"].InferenceSession.__module__.split(".")[0]
    answer = {"on": runs_on, "made": made, "first": first, "later": seconds, "results": results}
    print(json.dumps(answer))

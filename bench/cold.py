"""One engine in a fresh process: load, first calls, a whole stream, memory. Prints one JSON line.

python -m bench.cold anydim --threads 1 --sentences 200
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil

from bench.engines import ENGINES
from bench.workloads import draw, streams
from examples.minilm.model import model_path

UNSEEN = [
    (1, 9), (1, 77), (3, 29), (2, 121), (5, 45), (1, 203), (8, 63), (1, 251), (6, 19), (4, 99),
]  # fmt: skip


def resident_mb() -> float:
    return psutil.Process(os.getpid()).memory_info().rss / 1e6


def first_calls(call) -> list[dict[str, float]]:
    """First call at a size never seen before, and the median of the calls that follow."""
    rows = []
    call(draw(1, 5))
    for batch, seq in UNSEEN:
        feeds = draw(batch, seq)
        times = []
        for _ in range(8):
            start = perf_counter()
            call(feeds)
            times.append(perf_counter() - start)
        steady = median(times[1:])
        rows.append({"batch": batch, "seq": seq, "first": times[0], "steady": steady})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=200)
    options = parser.parse_args()
    path = Path(model_path())
    singles = streams(options.sentences)[0]
    before = resident_mb()
    start = perf_counter()
    call = ENGINES[options.engine].load(path, options.threads)
    loaded = perf_counter() - start
    start = perf_counter()
    for feeds in singles.requests:
        call(feeds)
    stream = perf_counter() - start
    after = resident_mb()
    print(
        json.dumps(
            {
                "engine": options.engine,
                "load_s": loaded,
                "stream_s": stream,
                "total_s": loaded + stream,
                "resident_mb": after - before,
                "peak_mb": peak_mb(),
                "first_calls": first_calls(call),
            }
        )
    )


def peak_mb() -> float:
    try:
        import resource
    except ImportError:
        return resident_mb()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()

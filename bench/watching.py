"""What `adaptive` costs a short script: it watches sizes, and starts a process that makes code.

    python -m bench.watching [--only MiniLM] [--calls 1,10,1000] [--sizes 1]

Each row is a script of its own that compiles a model (the cache of code is warm) and calls it so
often, at `sizes` sizes in turns: its wall seconds after the compile, its own seconds of processor
time, those of the processes that it started (until they end, after it), and their memory. Three
ways: generic code; `adaptive` that knows nothing of this model yet; and once more, when the file of
verdicts has what the run before it found. `made` counts bodies at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import psutil

import anydim as ad
from bench.streams import STREAMS, key

ROWS = (("generic", True), ("adaptive, first", True), ("adaptive, again", False))
BETWEEN = 0.05  # seconds from one look at a process to the next


def script(name: str, strategy: str, calls: int, sizes: int) -> None:
    """The life of one script; prints a line of JSON."""
    import numpy

    stream, random = STREAMS[name], numpy.random.default_rng(0)
    drawn = {key(made): made for made in (stream.draw(random) for _ in range(50 * sizes))}
    requests = list(drawn.values())[:sizes]
    source = stream.model().SerializeToString()
    model = ad.compile(source, strategy=strategy)
    start, before = time.perf_counter(), time.process_time()
    for request in islice(cycle(requests), calls):
        model(**request)
    wall, own = time.perf_counter() - start, time.process_time() - before
    print(json.dumps({"wall": wall, "own": own, "made": len(model.variants())}), flush=True)


def watched(command: list[str], cache: str) -> dict[str, float]:
    """Run a script to the end of all that it started; what it says, and what those took."""
    environment = {**os.environ, "ANYDIM_CACHE_DIR": cache}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    seen: dict[int, psutil.Process] = {}
    seconds: dict[int, float] = {}
    memory: dict[int, int] = {}
    while process.poll() is None or seen:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                seen.setdefault(child.pid, child)
        for child in list(seen.values()):
            try:
                times = child.cpu_times()
                seconds[child.pid] = times.user + times.system
                memory[child.pid] = max(memory.get(child.pid, 0), child.memory_info().rss)
                if child.status() == psutil.STATUS_ZOMBIE:
                    seen.pop(child.pid)
            except psutil.Error:
                seen.pop(child.pid)
        time.sleep(BETWEEN)
    assert process.stdout is not None
    told = json.loads(process.stdout.read().splitlines()[-1])
    return {**told, "others": sum(seconds.values()), "rss": max(memory.values(), default=0)}


def main() -> None:
    """Print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", default="", help="models whose name has this word")
    parser.add_argument("--calls", default="1,10,1000")
    parser.add_argument("--sizes", type=int, default=1)
    parser.add_argument("--script", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.script:
        script(*given.script, int(given.calls), given.sizes)
        return
    print(f"{'':46}{'wall':>9}{'own':>9}{'others':>9}{'MiB':>7}{'made':>6}")
    with tempfile.TemporaryDirectory(prefix="anydim-watching-") as cache:
        for name in filter(lambda name: given.only in name, ("MiniLM", "resnet50")):
            command = [sys.executable, "-m", "bench.watching", "--sizes", str(given.sizes)]
            watched([*command, "--calls", "1", "--script", name, "generic"], cache)
            for calls in given.calls.split(","):
                for title, anew in ROWS:
                    if anew:
                        (Path(cache) / "variants.sqlite").unlink(missing_ok=True)
                    strategy = title.partition(",")[0]
                    some = [*command, "--calls", calls, "--script", name, strategy]
                    found = watched(some, cache)
                    print(
                        f"{name:10}{calls:>7} calls at {given.sizes:3} sizes, {title:16}"
                        f"{found['wall']:9.3f}{found['own']:9.3f}{found['others']:9.2f}"
                        f"{found['rss'] / 2**20:7.0f}{found['made']:6}", flush=True,
                    )  # fmt: skip


if __name__ == "__main__":
    main()

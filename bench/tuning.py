"""What tuning for recorded sizes is worth, on requests drawn afresh from the same distribution.

    python -m bench.tuning [--only MiniLM] [--minutes 5] [--threads 2] [--requests 150]
    python -m bench.tuning --measure             # what is known already, without a search

Requests of each stream (`bench/streams.py`) are recorded and tuned for; then others are sent to the
model as it is compiled now and as it was before, in turns. A figure is the time of all of them over
that of the untuned model: each request counts with its median of `CALLS` calls. Results have to be
equal in bits.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy

import anydim as ad
from anydim.base import settings
from bench.streams import STREAMS, Stream, answered

CALLS = 5
RECORDED, FRESH = 0, 1  # seeds


def tuned(stream: Stream, minutes: float, threads: int, requests: int) -> str:
    """Record a stream and tune for it; what came of it."""
    with settings.override(tuned=False):
        model = ad.compile(stream.model(), threads=threads, strategy="generic")
    random = numpy.random.default_rng(RECORDED)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sizes.jsonl"
        with model.record(path):
            for _ in range(requests):
                model(**stream.draw(random))
        start = time.perf_counter()
        found = model.tune(path, 60 * minutes)
    return f"{found} in {time.perf_counter() - start:.0f} s"


def compared(stream: Stream, threads: int, requests: int) -> tuple[float, float, int]:
    """The share of the untuned time, of all requests and of the median one; launches changed."""
    with settings.override(tuned=False):
        before = ad.compile(stream.model(), threads=threads, strategy="generic")
    after = ad.compile(stream.model(), threads=threads, strategy="generic")
    random = numpy.random.default_rng(FRESH)
    totals, ratios = [0.0, 0.0], []
    for _ in range(requests):
        request = stream.draw(random)
        for one, other in zip(before(**request).values(), after(**request).values()):
            numpy.testing.assert_array_equal(one, other)
        taken: list[list[float]] = [[], []]
        for turn in range(CALLS):
            for which in (turn % 2, 1 - turn % 2):
                taken[which].append(answered((before, after)[which], request))
        for which in (0, 1):
            totals[which] += median(taken[which])
        ratios.append(median(taken[1]) / median(taken[0]))
    pairs = zip(before.program.sites, after.program.sites)
    changed = sum(one.schedule != other.schedule for one, other in pairs)
    return totals[1] / totals[0], median(ratios), changed


def main() -> None:
    """Print a line for each stream."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="streams whose name has this word")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the search")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=150, help="recorded, and sent afresh")
    parser.add_argument("--measure", action="store_true", help="do not search")
    given = parser.parse_args()
    with settings.override(tuned=True):
        for name, stream in STREAMS.items():
            if given.only not in name:
                continue
            if not given.measure:
                said = tuned(stream, given.minutes, given.threads, given.requests)
                print(f"{name}: {said}", flush=True)
            share, middle, changed = compared(stream, given.threads, given.requests)
            print(
                f"{name}: {share:.3f} of the untuned time, {middle:.3f} of a request's at the "
                f"median; {changed} launches have another schedule", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()

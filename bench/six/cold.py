"""One engine and one workload in a fresh process: load, the whole stream, memory; prints JSON.

python -m bench.six.cold anydim "W2 LSTM" --threads 1
"""

from __future__ import annotations

import argparse
import json
import time

from bench.cold import peak_mb
from bench.isolated import pinned
from bench.six.engines import LOADED, carrying
from bench.six.workloads import WORKLOADS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=list(LOADED))
    parser.add_argument("workload", choices=[work.name for work in WORKLOADS])
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    pinned(given.threads)
    (work,) = (work for work in WORKLOADS if work.name == given.workload)
    source, requests = work.model().SerializeToString(), work.requests()
    start = time.perf_counter()
    call = carrying(LOADED[given.engine](source, given.threads), work.carried)
    loaded = time.perf_counter()
    call(requests[0])
    first = time.perf_counter()
    for feeds in requests[1:]:
        call(feeds)
    end = time.perf_counter()
    found = {"load": loaded - start, "first": first - loaded, "total": end - start}
    print(json.dumps(found | {"peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()

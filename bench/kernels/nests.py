"""Ordered loops of the language beside numpy and torch: scans, pooling, tables, stencils.

    python -m bench.kernels.nests [--json FILE] [NAME ...]

Every definition is compiled once, for every size. All are on one thread, timed in turns on the same
data as whole calls; a ratio is our median time over the peer's, so that below 1 is faster.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

import anydim as ad
from bench.arguments import cases_and_file

ROUNDS = 15
CHUNK_SECONDS = 0.02
Call = Callable[[], object]

LIBRARY = ad.define("""
def scan(float(T) x) -> (y) { for t in 0:T { y(t) = x(t) + (y(t-1) else 0) } }
def scan_rows(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }
def pooling(float(T,B,C) z, float(T,B,C) f, float(T,B,C) o) -> (h) {
  for t in 0:T {
    c(t,b,k) = f(t,b,k) * (c(t-1,b,k) else 0) + (1 - f(t,b,k)) * z(t,b,k)
    h(t,b,k) = o(t,b,k) * c(t,b,k)
  }
}
def levenshtein(int32(N) a, int32(M) b) -> (distance) {
  d(i,0) = int32(i) where i in 0:N+1
  d(0,j) = int32(j) where j in 1:M+1
  for i in 1:N+1 {
    for j in 1:M+1 {
      d(i,j) = min(min(d(i-1,j), d(i,j-1)) + 1, d(i-1,j-1) + (a(i-1) == b(j-1) ? 0 : 1))
    }
  }
  distance = d(N,M)
}
def heat(float(N) x, float(T) turns) -> (u) {
  u(0,i) = x(i)
  for t in 0:T {
    u(t+1,i) = 0.5 * u(t,i) + 0.25 * (u(t,i-1) else 0) + 0.25 * (u(t,i+1) else 0) where i in 0:N
  }
}
""")


@dataclass(frozen=True)
class Result:
    """Median times in microseconds, and ours over each peer's."""

    name: str
    ours: float
    peers: Mapping[str, float]
    ratios: Mapping[str, float]


def workloads() -> Iterator[tuple[str, Call, dict[str, Call]]]:
    """Names, our calls, and those of peers that do the same."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    row, rows = draw(100_000), draw(1000, 256)
    yield "scan 100000", lambda: LIBRARY.scan(row), {"numpy": lambda: np.cumsum(row)}
    yield "scan 1000x256", lambda: LIBRARY.scan_rows(rows), {"numpy": lambda: np.cumsum(rows, 0)}
    gates = draw(100, 8, 256), draw(100, 8, 256), draw(100, 8, 256)
    yield "pooling 100x8x256", lambda: LIBRARY.pooling(*gates), {"numpy": lambda: _pooling(*gates)}
    words = tuple(rng.integers(0, 4, 500, np.int32) for _ in range(2))
    yield (
        "levenshtein 500x500", lambda: LIBRARY.levenshtein(*words),
        {"numpy": lambda: _levenshtein(*words)},
    )  # fmt: skip
    start, turns = draw(4096), draw(500)
    yield "heat 500x4096", lambda: LIBRARY.heat(start, turns), {"numpy": lambda: _heat(start, 500)}


def _pooling(z: np.ndarray, f: np.ndarray, o: np.ndarray) -> np.ndarray:
    h, c = np.empty_like(z), np.zeros_like(z[0])
    for turn in range(len(z)):
        c = f[turn] * c + (1 - f[turn]) * z[turn]
        np.multiply(o[turn], c, out=h[turn])
    return h


def _levenshtein(a: np.ndarray, b: np.ndarray) -> int:
    """Along anti-diagonals, all of one at a time."""
    table = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for total in range(2, len(a) + len(b) + 1):
        i = np.arange(max(1, total - len(b)), min(len(a), total - 1) + 1)
        j = total - i
        near = np.minimum(table[i - 1, j], table[i, j - 1]) + 1
        table[i, j] = np.minimum(near, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return int(table[-1, -1])


def _heat(start: np.ndarray, turns: int) -> np.ndarray:
    u = np.empty((turns + 1, len(start)), np.float32)
    u[0] = start
    for turn in range(turns):
        np.multiply(u[turn], 0.5, out=u[turn + 1])
        u[turn + 1, 1:] += 0.25 * u[turn, :-1]
        u[turn + 1, :-1] += 0.25 * u[turn, 1:]
    return u


def measure(name: str, ours: Call, peers: Mapping[str, Call]) -> Result:
    """Medians of rounds in which all take turns."""
    calls = {"ours": ours, **peers}
    wanted = ours()
    for peer in peers.values():
        np.testing.assert_allclose(wanted, peer(), rtol=1e-2, atol=1e-2)
    once = {key: max(_seconds(call, 1), 1e-7) for key, call in calls.items()}
    counts = {key: max(1, int(CHUNK_SECONDS / seconds)) for key, seconds in once.items()}
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key, call in calls.items():
            times[key].append(_seconds(call, counts[key]))
    medians = {key: 1e6 * statistics.median(found) for key, found in times.items()}
    mine = medians.pop("ours")
    return Result(name, mine, medians, {key: mine / other for key, other in medians.items()})


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def main() -> None:
    """Print a line for each workload; with --json, write all to a file."""
    names, file = cases_and_file(__doc__)
    results = []
    for name, ours, peers in workloads():
        if not name.startswith(names or ""):
            continue
        results.append(measure(name, ours, peers))
        one = results[-1]
        told = "  ".join(f"{k} {v:.1f} us, ratio {one.ratios[k]:.2f}" for k, v in one.peers.items())
        print(f"{one.name:<22} {one.ours:10.1f} us  {told}")
    if file:
        with open(file, "w", encoding="utf-8") as out:
            json.dump([asdict(result) for result in results], out, indent=1)


if __name__ == "__main__":
    main()

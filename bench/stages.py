"""Stencils over time and recurrences in two directions on one thread and two, beside numpy and,
where it is installed, torch: python -m bench.stages

Each call is timed in rows of a few, so that workers are up as in a program that calls it again and
again; the least time counts. numpy does a step of a stencil, or a diagonal, at a time, torch a step
as a convolution on two threads.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import anydim as ad
from bench.arguments import no_words

LINE = """
def line(float(N) x, float(K) steps) -> (x) {
  for t in 0:K {
    y(i) = 0.5 * x(i) + 0.25 * ((x(i-1) else 0) + (x(i+1) else 0))
    x(i) = y(i)
  }
}
"""
PLATE = """
def plate(float(H,W) x, float(K) steps) -> (x) {
  for t in 0:K {
    across(i,j) = (x(i,j-1) else 0) + (x(i,j+1) else 0) where exists x(i,j)
    y(i,j) = 0.5 * x(i,j) + 0.125 * ((x(i-1,j) else 0) + (x(i+1,j) else 0) + across(i,j))
    x(i,j) = y(i,j)
  }
}
"""
WARP = """
def warp(float(N,M) c) -> (d) {
  a(i,j) = 0 where i in 0:N+1, j in 0:M+1
  for i in 1:N + 1 {
    for j in 1:M + 1 { a(i,j) = min(min(a(i-1,j), a(i,j-1)), a(i-1,j-1)) + c(i-1,j-1) }
  }
  d = a(N,M)
}
"""
STEPS = 50


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).random(shape, dtype=np.float32)


def _line(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    wide = np.pad(x, 1)
    for _ in steps:
        wide[1:-1] = 0.5 * wide[1:-1] + 0.25 * (wide[:-2] + wide[2:])
    return wide[1:-1]


def _plate(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    w = np.pad(x, 1)
    for _ in steps:
        sides = w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:]
        w[1:-1, 1:-1] = 0.5 * w[1:-1, 1:-1] + 0.125 * sides
    return w[1:-1, 1:-1]


def _warp(c: np.ndarray) -> np.ndarray:
    """A diagonal at a time: element i of it has been made of i - 1 and i of those before it."""
    n, m = c.shape
    before, last = np.zeros((2, n + 1), np.float32)
    flat = c.reshape(-1)
    for k in range(2, n + m + 1):
        low, high = max(1, k - m), min(n, k - 1)
        new = np.zeros(n + 1, np.float32)
        costs = flat[(low - 1) * m + k - low - 1 : (high - 1) * m + k - high : max(1, m - 1)]
        near = np.minimum(last[low - 1 : high], last[low : high + 1])
        new[low : high + 1] = np.minimum(near, before[low - 1 : high]) + costs
        before, last = last, new
    return last[n]


WEIGHTS = {
    "line": np.array([0.25, 0.5, 0.25], np.float32),
    "plate": np.array([[0, 0.125, 0], [0.125, 0.5, 0.125], [0, 0.125, 0]], np.float32),
}


def by_torch(name: str, x: np.ndarray, steps: np.ndarray) -> Callable[[], Any] | None:
    """The steps of a stencil by torch; None where it is not installed."""
    if name not in WEIGHTS or not find_spec("torch"):
        return None
    torch = importlib.import_module("torch")
    torch.set_num_threads(2)
    conv = torch.conv1d if x.ndim == 1 else torch.conv2d
    taps, start = (torch.from_numpy(a[None, None]) for a in (WEIGHTS[name], x))

    def run() -> Any:
        now = start
        with torch.no_grad():
            for _ in steps:
                now = conv(now, taps, padding=1)
        return now

    return run


CASES: tuple[tuple[str, str, Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    ("line", LINE, _line, ((3_000,), (30_000,), (100_000,), (1_000_000,))),
    ("plate", PLATE, _plate, ((100, 100), (200, 200), (300, 300), (1_000, 1_000))),
    ("warp", WARP, _warp, ((100, 100), (300, 300), (1_000, 1_000), (3_000, 3_000), (30, 3_000))),
)


def least(call: Callable[[], Any], seconds: float = 0.3) -> float:
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def main() -> None:
    heads = ("1 thread", "2 threads", "gain", "numpy", "torch")
    print(f"{'case':20}", *(f"{head:>10}" for head in heads), "  us")
    for name, text, plain, sizes in CASES:
        one, two = (getattr(ad.define(text, threads=threads), name) for threads in (1, 2))
        for shape in sizes:
            given = [draw(*shape)] + ([draw(STEPS)] if name != "warp" else [])
            np.testing.assert_allclose(one(*given), plain(*given), rtol=1e-3, atol=1e-4)
            assert np.asarray(one(*given)).tobytes() == np.asarray(two(*given)).tobytes()
            calls = [partial(call, *given) for call in (one, two, plain)]
            torch = by_torch(name, *given) if name in WEIGHTS else None
            alone, shared, other = map(least, calls)
            row = [alone, shared, alone / shared, other, *([least(torch)] if torch else [])]
            label = f"{name} {' x '.join(map(str, shape))}"
            print(f"{label:20}", *(f"{value:10.4g}" for value in row), flush=True)


if __name__ == "__main__":
    no_words(__doc__)
    main()

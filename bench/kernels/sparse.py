"""Ranges that data gives, beside torch's sparse and scatter operators and beside ordered loops.

    python -m bench.kernels.sparse [--json FILE] [NAME ...]        with torch in the environment

Sparse products, segment sums, segment softmax and graph convolutions at ten shapes of sparsity, on
one thread (processor time) and on two (elapsed time). All are timed in turns on the same data as
whole calls, results against float64. `ratio` is the time of the statement over that of the faster
of torch's fastest operator and the loops, so that below 1 is faster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch

import anydim as ad
from bench.arguments import cases_and_file

ROUNDS, SECONDS = 15, 0.01  # rounds of at least that long for each call
Call = Callable[[], object]
TEXT = """
def product(float(Z) val, int64(Z) col, int64(P) ptr, float(V,F) x) -> (y) {
  y(r,f) +=! val(z) * x(col(z),f) where r in 0:P-1, z in ptr(r):ptr(r+1)
}
def product_loops(float(Z) val, int64(Z) col, int64(P) ptr, float(V,F) x) -> (y) {
  y(r,f) = 0 where r in 0:P-1, exists x(0,f)
  for r in 0:P-1 { for z in ptr(r):ptr(r+1) { y(r,f) += val(z) * x(col(z),f) } }
}
def sums(int64(P) ptr, float(Z,F) x) -> (y) {
  y(r,f) +=! x(z,f) where r in 0:P-1, z in ptr(r):ptr(r+1)
}
def sums_loops(int64(P) ptr, float(Z,F) x) -> (y) {
  y(r,f) = 0 where r in 0:P-1, exists x(0,f)
  for r in 0:P-1 { for z in ptr(r):ptr(r+1) { y(r,f) += x(z,f) } }
}
def softmax(int64(P) ptr, int64(Z) row, float(Z,F) x) -> (y) {
  top(r,f) max=! x(z,f) where r in 0:P-1, z in ptr(r):ptr(r+1)
  total(r,f) +=! exp(x(z,f) - top(r,f)) where z in ptr(r):ptr(r+1)
  y(z,f) = exp(x(z,f) - top(row(z),f)) / total(row(z),f)
}
def softmax_loops(int64(P) ptr, float(Z,F) x) -> (y) {
  top(r,f) = -inf where r in 0:P-1, exists x(0,f)
  total(r,f) = 0.0 where r in 0:P-1, exists x(0,f)
  y(z,f) = 0.0 where exists x(z,f)
  for r in 0:P-1 {
    for z in ptr(r):ptr(r+1) { top(r,f) max= x(z,f) }
    for z in ptr(r):ptr(r+1) {
      y(z,f) = exp(x(z,f) - top(r,f))
      total(r,f) += y(z,f)
    }
    for z in ptr(r):ptr(r+1) { y(z,f) = y(z,f) / total(r,f) }
  }
}
def product_1(float(Z) val, int64(Z) col, int64(P) ptr, float(V) x) -> (y) {
  y(r) +=! val(z) * x(col(z)) where r in 0:P-1, z in ptr(r):ptr(r+1)
}
def product_1_loops(float(Z) val, int64(Z) col, int64(P) ptr, float(V) x) -> (y) {
  y(r) = 0 where r in 0:P-1
  for r in 0:P-1 { for z in ptr(r):ptr(r+1) { y(r) += val(z) * x(col(z)) } }
}
def sums_1(int64(P) ptr, float(Z) x) -> (y) {
  y(r) +=! x(z) where r in 0:P-1, z in ptr(r):ptr(r+1)
}
def sums_1_loops(int64(P) ptr, float(Z) x) -> (y) {
  y(r) = 0 where r in 0:P-1
  for r in 0:P-1 { for z in ptr(r):ptr(r+1) { y(r) += x(z) } }
}
def convolution(float(Z) val, int64(Z) col, int64(P) ptr, float(V,F) x, float(F,G) w) -> (y) {
  h(r,f) +=! val(z) * x(col(z),f) where r in 0:P-1, z in ptr(r):ptr(r+1)
  y(r,g) +=! h(r,f) * w(f,g)
}
def convolution_loops(float(Z) val, int64(Z) col, int64(P) ptr, float(V,F) x, float(F,G) w) -> (y) {
  h(r,f) = 0 where r in 0:P-1, exists x(0,f)
  for r in 0:P-1 { for z in ptr(r):ptr(r+1) { h(r,f) += val(z) * x(col(z),f) } }
  y(r,g) +=! h(r,f) * w(f,g)
}
"""


@dataclass(frozen=True)
class Result:
    """Times in milliseconds of the statement, the loops, and torch's fastest way."""

    operator: str
    shape: str
    threads: int
    ours: float
    loops: float
    torch: float

    @property
    def ratio(self) -> float:
        return self.ours / min(self.loops, self.torch)


def shapes() -> Iterator[tuple[str, np.ndarray, int]]:
    """Names of shapes of sparsity, the numbers of elements of their rows, and columns."""
    rng = np.random.default_rng(0)
    ten = rng.poisson(10, 20_000)
    huge = rng.poisson(5, 20_000)
    huge[7_000] = 100_000
    yield "10 a row, 64 columns", ten, 64
    yield "10 a row, 1 column", ten, 1
    yield "10 a row, 65 columns", ten, 65
    yield "10 a row, 512 columns", rng.poisson(10, 2_000), 512
    yield "1 a row, 64 columns", np.ones(20_000, np.int64), 64
    yield "10,000 a row, 64 columns", np.full(20, 10_000), 64
    yield "10,000 a row, 1 column", np.full(20, 10_000), 1
    yield "empty rows, 64 columns", ten * (rng.random(20_000) < 0.2), 64
    yield "one huge row, 64 columns", huge, 64
    yield "1 to 10,000 a row, 8 columns", (10 ** rng.uniform(0, 4, 400)).astype(np.int64), 8


def workloads(library: ad.Definitions, counts: np.ndarray, columns: int) -> Iterator[
    tuple[str, Call, Call, dict[str, Call], np.ndarray]
]:  # fmt: skip
    """Operators: the statement, the loops, torch's ways, and the result in float64."""
    rng = np.random.default_rng(1)
    rows, count = len(counts), int(counts.sum())
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    row = np.repeat(np.arange(rows), counts)
    col = rng.integers(0, rows, count)
    val = rng.standard_normal(count, np.float32)
    x, w = (
        rng.standard_normal((rows, columns), np.float32),
        rng.standard_normal((columns, 64), np.float32),
    )
    each = rng.standard_normal((count, columns), np.float32)
    arrays = {"x": x, "w": w, "each": each, "row": row, "col": col, "val": val, "counts": counts}
    t = {name: torch.from_numpy(array) for name, array in arrays.items()}
    matrix = torch.sparse_csr_tensor(torch.from_numpy(ptr), t["col"], t["val"], (rows, rows))
    spread = t["row"][:, None].expand(count, columns)

    def scattered(values: torch.Tensor, how: str) -> torch.Tensor:
        start = torch.full((rows, columns), -torch.inf if how == "amax" else 0.0)
        return start.scatter_reduce_(0, spread, values, how)

    def added(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(rows, columns).index_add_(0, t["row"], values)

    def softmax() -> torch.Tensor:
        powers = torch.exp(t["each"] - scattered(t["each"], "amax")[t["row"]])
        return powers / added(powers)[t["row"]]

    def sums64(values: np.ndarray) -> np.ndarray:
        return np.stack(
            [np.bincount(row, column, minlength=rows) for column in values.T.astype(np.float64)], 1
        )

    product = sums64(val[:, None].astype(np.float64) * x[col])
    matrices = {"sparse @ dense": lambda: matrix @ t["x"]}
    yield (
        "product", lambda: library.product(val, col, ptr, x),
        lambda: library.product_loops(val, col, ptr, x), matrices, product,
    )  # fmt: skip
    yield (
        "sums", lambda: library.sums(ptr, each), lambda: library.sums_loops(ptr, each),
        {
            "index_add_": lambda: added(t["each"]),
            "scatter_reduce_": lambda: scattered(t["each"], "sum"),
            "segment_reduce":
                lambda: torch.segment_reduce(t["each"], "sum", lengths=t["counts"], axis=0),
        },
        sums64(each),
    )  # fmt: skip
    if columns == 1:
        flat, vector, last = each[:, 0].copy(), x[:, 0].copy(), t["x"][:, 0].contiguous()
        values, start = t["each"][:, 0].contiguous(), torch.zeros(rows)
        yield (
            "product of a vector", lambda: library.product_1(val, col, ptr, vector),
            lambda: library.product_1_loops(val, col, ptr, vector),
            {"sparse @ vector": lambda: matrix @ last}, product[:, 0],
        )  # fmt: skip
        yield (
            "sums of a vector", lambda: library.sums_1(ptr, flat),
            lambda: library.sums_1_loops(ptr, flat),
            {
                "index_add": lambda: start.index_add(0, t["row"], values),
                "segment_reduce":
                    lambda: torch.segment_reduce(values, "sum", lengths=t["counts"], axis=0),
            },
            sums64(each)[:, 0],
        )  # fmt: skip
    powers = np.exp(each.astype(np.float64))
    yield (
        "softmax", lambda: library.softmax(ptr, row, each),
        lambda: library.softmax_loops(ptr, each), {"scatter": softmax},
        powers / sums64(powers)[row],
    )  # fmt: skip
    yield (
        "convolution", lambda: library.convolution(val, col, ptr, x, w),
        lambda: library.convolution_loops(val, col, ptr, x, w),
        {"sparse @ dense @ matrix": lambda: (matrix @ t["x"]) @ t["w"]}, product @ w,
    )  # fmt: skip


def measure(calls: Mapping[str, Call], clock: Callable[[], float]) -> dict[str, float]:
    """The least milliseconds of rounds in which all take turns."""
    counts = {}
    for key, call in calls.items():
        begin = time.perf_counter()
        call()
        counts[key] = max(1, int(SECONDS / max(time.perf_counter() - begin, 1e-7)))
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for key, call in calls.items():
            begin = clock()
            for _ in range(counts[key]):
                call()
            times[key] = min(times[key], 1e3 * (clock() - begin) / counts[key])
    return times


def main() -> None:
    """Print a line for each operator and shape; with --json, write all to a file."""
    names, file = cases_and_file(__doc__)
    results = []
    for threads, clock in ((1, time.thread_time), (2, time.perf_counter)):
        torch.set_num_threads(threads)
        library = ad.define(TEXT, threads=threads)
        for shape, counts, columns in shapes():
            for operator, ours, loops, ways, wanted in workloads(library, counts, columns):
                if names and not operator.startswith(names):
                    continue
                for call in (ours, loops, *ways.values()):
                    got, most = np.asarray(call()), np.abs(wanted).max(initial=1)
                    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5 * most)
                times = measure({"ours": ours, "loops": loops, **ways}, clock)
                best = min(times[way] for way in ways)
                one = Result(operator, shape, threads, times["ours"], times["loops"], best)
                results.append(one)
                print(f"{operator:<20} {shape:<29} {threads} {one.ours:8.3f} {one.loops:8.3f} "
                      f"{one.torch:8.3f} ms  ratio {one.ratio:.2f}", flush=True)  # fmt: skip
    if file:
        with open(file, "w", encoding="utf-8") as out:
            json.dump([{**asdict(one), "ratio": one.ratio} for one in results], out, indent=1)


if __name__ == "__main__":
    main()

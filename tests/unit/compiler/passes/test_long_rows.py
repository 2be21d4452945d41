"""Promise: threads share a long row; it has the same bits on any number of them, as alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.kernels.limits import DEFAULTS
from anydim.compiler.kernels.work_estimate import PIECE

LONG = DEFAULTS.shared_row
LENGTHS = (0, 1, 15, 17, PIECE - 1, PIECE, PIECE + 1, LONG - 1, LONG, LONG + 1, 100_003)
OF_ROWS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (
        """def f(float(N,M) x) -> (y) {
          top(n) max=! x(n,m)
          e(n,m) = exp(x(n,m) - top(n))
          total(n) +=! e(n,m)
          y(n,m) = e(n,m) / total(n)
        }""",
        lambda x: np.exp(x - x.max(1)) / np.exp(x - x.max(1)).sum(1),
    ),
    "variance": (
        """def f(float(N,M) x) -> (y) {
          mean(n) +=! x(n,m) / float(M)
          y(n) +=! (x(n,m) - mean(n)) * (x(n,m) - mean(n)) / float(M)
        }""",
        lambda x: x.var(1),
    ),
    "norm": (
        """def f(float(N,M) x) -> (y) {
          s(n) +=! x(n,m) * x(n,m)
          y(n,m) = x(n,m) / sqrt(s(n))
        }""",
        lambda x: x / np.sqrt((x * x).sum(1)),
    ),
    "maximum": ("def f(float(N,M) x) -> (y) { y(n) max=! x(n,m) }", lambda x: x.max(1)),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_every_length_on_any_number_of_threads(name):
    text, meaning = OF_ROWS[name]
    functions = [ad.define(text, threads=threads).f for threads in (1, 2, 3, 7)]
    for length in LENGTHS:
        row = np.random.default_rng(length).standard_normal((1, length)).astype(np.float32)
        right = functions[0](row)[-1:].tobytes()
        for function in functions:
            for rows in (1, 2, 20):
                x = np.concatenate([np.ones((rows - 1, length), np.float32), row])
                assert function(x)[-1:].tobytes() == right, (length, rows)
        if length:
            found = np.frombuffer(right, np.float32)
            # sums of pieces: some roundings of 2^-24 of what is added up
            np.testing.assert_allclose(found, meaning(row.astype(float)).ravel(), 3e-6, 1e-12)


def test_a_launch_for_each_sweep_where_one_row_is_long():
    function = ad.define(OF_ROWS["softmax"][0], threads=2).f
    model = function.model(np.ones((2, 3), np.float32))
    parts = {
        rows: [launch.parallel for launch in model.plan(N=rows, M=10 * PIECE).launches]
        for rows in (1, 100)
    }
    assert parts == {1: [10, 10, 10, 0], 100: [0, 0, 0, 100]}
    assert model.plan(N=100, M=100).arena_bytes == 0

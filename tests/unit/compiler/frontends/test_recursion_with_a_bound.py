"""Promise: recursion whose calls data decides gives what Python gives, up to its bound."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad

TEXT = """
def fib(int64 n; size depth = 30) -> (f) {
  if n < 2 { f = n } else { a = fib(n - 1)  b = fib(n - 2)  f = a + b }
}
def ackermann(int64 m, int64 n; size depth = 2000) -> (r) {
  if m == 0 { r = n + 1 } else {
    if n == 0 { r = ackermann(m - 1, 1) } else { t = ackermann(m, n - 1)  r = ackermann(m - 1, t) }
  }
}
def even(int64 n; size depth = 100001) -> (e) { if n == 0 { e = 1 } else { e = odd(n - 1) } }
def odd(int64 n; size depth = 100001) -> (e) { if n == 0 { e = 0 } else { e = even(n - 1) } }
def power(float(N,N) A, float(N) x, int64 k; size depth = 50) -> (y) {
  if k == 0 { y(i) = x(i) } else { z(i) +=! A(i,j) * x(j)  y = power(A, z, k - 1) }
}
def hanoi(int64 n; size depth = 40) -> (moves, deepest) {
  if n == 0 { moves = 0  deepest = 0 } else {
    a, p = hanoi(n - 1)
    b, q = hanoi(n - 1)
    moves = a + b + 1
    deepest = max(p, q) + 1
  }
}
def search(double(N) x, double v, int64 low, int64 high; size depth = 70) -> (at) {
  middle = (low + high) // 2
  if high - low < 1 { at = low } else {
    if x(middle) < v { at = search(x, v, middle + 1, high) } else { at = search(x, v, low, middle) }
  }
}
def quad(int64(N,4) child, float(N) weight, int64 at; size depth = 20) -> (total) {
  total = at < 0 ? 0 : weight(max(at, 0))
  if at >= 0 {
    for k in 0:1 { scale = 0.5 }
    a = quad(child, weight, child(at, 0))
    b = quad(child, weight, child(at, 1))
    c = quad(child, weight, child(at, 2))
    d = quad(child, weight, child(at, 3))
    total = total + scale * (a + b + c + d)
  }
}
"""


@pytest.fixture(scope="module")
def lib() -> Any:
    return ad.define(TEXT)


def test_numbers(lib: Any) -> None:
    @functools.cache
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert [int(lib.fib(n)) for n in range(16)] == [fib(n) for n in range(16)]
    moves, deepest = lib.hanoi(7)
    assert (int(moves), int(deepest)) == (127, 7)


def test_calls_with_results_of_calls(lib: Any) -> None:
    def ackermann(m: int, n: int) -> int:
        if m == 0:
            return n + 1
        return ackermann(m - 1, ackermann(m, n - 1) if n else 1)

    for m, n in [(0, 0), (1, 3), (2, 0), (2, 3), (3, 2)]:
        assert int(lib.ackermann(m, n)) == ackermann(m, n)


def test_a_hundred_thousand_open_calls(lib: Any) -> None:
    assert int(lib.even(100_000)) == 1
    assert int(lib.even(99_999)) == 0


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_tensors_in_calls(lib: Any, size: int) -> None:
    random = numpy.random.default_rng(size)
    a = random.standard_normal((size, size)).astype(numpy.float32) / max(size, 1)
    x = random.standard_normal(size).astype(numpy.float32)
    expected = x.astype(float)
    for k in range(4):
        numpy.testing.assert_allclose(lib.power(a, x, k), expected, rtol=1e-4, atol=1e-6)
        expected = a.astype(float) @ expected


def test_conditions_on_elements(lib: Any) -> None:
    x = numpy.sort(numpy.random.default_rng(0).standard_normal(101))
    for v in (-9.0, float(x[17]), 0.1, 9.0):
        assert int(lib.search(x, v, 0, len(x))) == int(numpy.searchsorted(x, v))


def test_statements_after_a_branch_with_calls(lib: Any) -> None:
    random = numpy.random.default_rng(1)
    child = numpy.full((40, 4), -1)
    for node in range(1, 40):
        child[random.integers(node), random.integers(4)] = node
    weight = random.standard_normal(40).astype(numpy.float32)

    def total(at: int) -> float:
        if at < 0:
            return 0.0
        return float(weight[at]) + 0.5 * sum(total(int(c)) for c in child[at])

    numpy.testing.assert_allclose(lib.quad(child, weight, 0), total(0), rtol=1e-5)


def test_too_many_open_calls(lib: Any) -> None:
    with pytest.raises(ad.DimError, match=r"fib\.depth.* is 31, above its bound 30"):
        lib.fib(40)
    assert int(lib.fib(5)) == 5


def test_saved(lib: Any, tmp_path: Path) -> None:
    model = lib.ackermann.model(2, 3)
    model.save(tmp_path / "ackermann.anydim")
    loaded = ad.load(tmp_path / "ackermann.anydim")
    feeds = {name: numpy.array(value) for name, value in (("m", 2), ("n", 3))}
    assert int(loaded(**feeds)["r"]) == 9


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def f(int64 n) -> (y) { y = f(n - 1) }", r"size depth = 100"),
        ("def f(int64 n; size depth = 9) -> (y) { y = f(n - 1) }", "no branch ends the recursion"),
        (
            "def f(int64 n; size depth = 9) -> (y) { y = 0  for k in 0:2 { z = f(n)  y += z } }",
            "cannot be inside a loop",
        ),
        (
            "def f(float(N) x; size depth = 9) -> (y) { if x(0) < 0 { y(i) = x(i) } else {"
            " z(i) = x(0) where i in 0:2  y = f(z) } }",
            "has the sizes",
        ),
        ("def f(int64 n; size depth = 0) -> (y) { if n < 1 { y = n } else { y = f(n - 1) } }",
         "at least 1"),
    ],
)  # fmt: skip
def test_mistakes(text: str, problem: str) -> None:
    with pytest.raises(ad.LanguageError, match=problem):
        function = ad.define(text).f
        function(numpy.ones(3, numpy.float32) if "float" in text else 3)

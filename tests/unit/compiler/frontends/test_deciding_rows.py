"""Promise: rows of a batch that decide for themselves get what each gets alone, and the reference.

Recursion with a bound, `while`, and calls for each row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.lang.surface.parser import parse
from anydim.runtime.program.region import LoopStep, SegmentStep
from bench import shift_reduce
from tests.interpreter.run import run

TEXT = """
def fib(int64 n; size depth = 20) -> (f) {
  if n < 2 { f = n } else { a = fib(n - 1)  b = fib(n - 2)  f = a + b }
}
def fibs(int64(B) n) -> (f) { f(b) = fib(n(b)) }
def after(int64 n) -> (m) { f = fib(n)  m = 2 * f + 1 }

def gcd(int64 a, int64 b) -> (a) { while b != 0 { t = a % b  a = b  b = t } }
def gcds(int64(B) x, int64(B) y) -> (g, h) { g(b) = gcd(x(b), y(b))  h(i) = 2 * g(i) }

def newton(float(N) x) -> (y, n) {
  y(i) = x(i)
  n = 0
  e max=! abs(y(i) * y(i) - x(i))
  while e > 0.01 {
    y(i) = 0.5 * (y(i) + x(i) / y(i))
    d(i) = y(i) * y(i) - x(i)
    e max=! abs(d(i))
    n += 1
  }
}
def newtons(float(B,N) x) -> (y, n) { y(b), n(b) = newton(x(b)) }

def sieve(int64 limit, bool(N) marked) -> (marked, count) {
  p = 2
  count = 0
  while p < limit {
    if !marked(p) {
      q = 2 * p
      while q < limit { marked(q) = true  q += p }
      count += 1
    }
    p += 1
  }
}
def sieves(int64(B) limit, bool(B,N) marked) -> (m, c) { m(b), c(b) = sieve(limit(b), marked(b)) }

def postfix(int64(T) code, int64 length, float(T) value) -> (y) {
  stack(s) = 0.0 * value(s)
  top = 0
  at = 0
  while at < length {
    if code(at) == 0 {
      stack(top) = value(at)
      top += 1
    } else {
      r = code(at) == 1 ? stack(top - 2) + stack(top - 1) : stack(top - 2) * stack(top - 1)
      stack(top - 2) = r
      top = top - 1
    }
    at += 1
  }
  y = stack(0)
}
def postfixes(int64(B,T) code, int64(B) length, float(B,T) value) -> (y) {
  y(b) = postfix(code(b), length(b), value(b))
}

def power(float(N,N) A, float(N) x, int64 k; size depth = 1) -> (y) {
  if k == 0 { y(i) = x(i) } else { z(i) +=! A(i,j) * x(j)  y = power(A, z, k - 1) }
}
def powers(float(N,N) A, float(B,N) x, int64(B) k) -> (y) { y(b) = power(A, x(b), k(b)) }

def ahead(float(N) x, int64 k) -> (y) { z, at = top_k(x; k = 2)  y = z(0) * float(k) + z(1) }
def aheads(float(B,N) x, int64(B) k) -> (y) { y(b) = ahead(x(b), k(b)) }
"""
DEFINITIONS = parse(TEXT)
SIZES = [0, 1, 2, 7, 33]


@pytest.fixture(scope="module")
def lib() -> Any:
    return ad.define(TEXT, threads=1)


def as_tuple(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)


def same(lib: Any, name: str, *arguments: Any) -> None:
    """Compare a call with the interpreter; with no rows, only the sizes."""
    arrays = [numpy.asarray(each) for each in arguments]
    made = as_tuple(getattr(lib, name)(*arrays))
    if any(array.shape[:1] == (0,) for array in arrays):
        assert all(numpy.asarray(each).shape[0] == 0 for each in made)
        return
    for found, expected in zip(made, run(DEFINITIONS[name], arrays).values()):
        assert numpy.asarray(found).dtype.name == expected.kind
        numpy.testing.assert_allclose(found, expected.values, rtol=2e-4, atol=1e-5)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("rows", SIZES)
def test_numbers(lib: Any, rows: int) -> None:
    random = numpy.random.default_rng(rows)
    same(lib, "fibs", random.integers(0, 9, rows))
    same(lib, "gcds", random.integers(0, 90, rows), random.integers(0, 90, rows))


def test_one_call(lib: Any) -> None:
    for n in (0, 1, 6):
        same(lib, "after", numpy.int64(n))
    for a, b in [(0, 0), (12, 18), (17, 5), (5, 0)]:
        same(lib, "gcd", numpy.int64(a), numpy.int64(b))


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("rows", SIZES)
def test_tensors(lib: Any, rows: int) -> None:
    random = numpy.random.default_rng(rows)
    x = random.uniform(0.5, 50, (rows, 3)).astype(numpy.float32)
    same(lib, "newtons", x)
    a = random.standard_normal((3, 3)).astype(numpy.float32) / 2
    same(lib, "powers", a, x, random.integers(0, 6, rows))


def test_tensors_of_one_call(lib: Any) -> None:
    x = numpy.random.default_rng(0).uniform(0.5, 50, 5).astype(numpy.float32)
    for size in (1, 2, 5):
        same(lib, "newton", x[:size])
    same(lib, "sieve", numpy.int64(30), numpy.zeros(31, bool))


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("inner", (
    "if m == 3 { y(d) = x(d) + x(d) }",
    "if m == 3 { if i == 2 { y(d) = x(d) + x(d) } }",
    "for t in 0:K { y(d) = x(d) + x(d) }",
    "for t in 0:K { if t > 0 && m == 3 { y(d) = x(d) + x(d) } }",
    "if m == 3 { r = 2 }\n y(d) = x(d) * int(r)",
))  # fmt: skip
def test_variables_that_iterations_may_leave(inner: str) -> None:
    loop = f"while i < n {{ {inner}\n i += 1 }}"
    text = f"""def one(int64 n, int64 m, int(D) x, int(K) k) -> (y) {{
  i = 0
  r = 1
  y(d) = x(d)
  {loop}
}}
def all(int64(B) n, int64(B) m, int(B,D) x, int(K) k) -> (y) {{
  y(b) = one(n(b), m(b), x(b), k)
}}"""
    lib, known = ad.define(text), parse(text)
    n, m = numpy.array([0, 1, 4, 0, 1, 4]), numpy.array([2, 2, 2, 3, 3, 3])
    x = numpy.arange(18, dtype=numpy.int32).reshape(6, 3)
    for k in (0, 1, 2):
        given = n, m, x, numpy.ones(k, numpy.int32)
        (expected,) = run(known["all"], list(given)).values()
        numpy.testing.assert_array_equal(lib.all(*given), expected.values, strict=True)
        for row in range(6):
            one = lib.one(n[row], m[row], x[row], given[3])
            numpy.testing.assert_array_equal(one, expected.values[row], strict=True)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_tensors_written_in_part(lib: Any, rows: int) -> None:
    random = numpy.random.default_rng(rows)
    same(lib, "sieves", random.integers(0, 40, rows), numpy.zeros((rows, 41), bool))
    code, value = numpy.zeros((rows, 15), numpy.int64), numpy.zeros((rows, 15), numpy.float32)
    length = numpy.zeros(rows, numpy.int64)
    for row in range(rows):
        words, top = list[int](), 0
        leaves = int(random.integers(1, 9))
        while leaves or top > 1:
            push = leaves and (top < 2 or random.integers(2))
            words.append(0 if push else int(random.integers(1, 3)))
            leaves, top = (leaves - 1, top + 1) if push else (leaves, top - 1)
        length[row] = len(words)
        code[row, : len(words)] = words
        value[row] = random.uniform(-1, 1, 15)
    same(lib, "postfixes", code, length, value)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_algorithms(lib: Any, rows: int) -> None:
    random = numpy.random.default_rng(rows)
    x = random.standard_normal((rows, 6)).astype(numpy.float32)
    k = random.integers(0, 5, rows)
    best = numpy.sort(x, axis=1)[:, ::-1]
    numpy.testing.assert_allclose(
        lib.aheads(x, k), best[:, 0] * k + best[:, 1], rtol=1e-6, atol=1e-6
    )


def test_too_many_open_calls(lib: Any) -> None:
    assert list(lib.fibs([19, 3])) == [4181, 2]
    with pytest.raises(ad.DimError, match=r"fib\.depth.* is 21, above its bound 20"):
        lib.fibs([3, 25])
    assert list(lib.fibs([4, 5])) == [3, 5]


def test_other_numbers_of_rows(lib: Any) -> None:
    with pytest.raises(ad.AnydimError):
        lib.gcds([1, 2, 3], [1, 2])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_in_any_batch(threads: int) -> None:
    given = shift_reduce.weights(12, 16, 8)
    model = shift_reduce.compiled(given, threads)
    batch = shift_reduce.sentences(33, 12)
    whole = model(x=batch.x, length=batch.length)["h"]
    numpy.testing.assert_allclose(whole, shift_reduce.reference(batch, given), rtol=1e-4, atol=1e-5)
    order = numpy.random.default_rng(0).permutation(33)
    for rows in (order[:2], order[:7], order):
        part = model(x=batch.x[rows], length=batch.length[rows])["h"]
        assert (part == whole[rows]).all()


def test_saved(tmp_path: Path) -> None:
    given = shift_reduce.weights(6, 8, 4)
    model = shift_reduce.compiled(given, 1)
    batch = shift_reduce.sentences(5, 6)
    model.save(tmp_path / "spinn.anydim")
    loaded = ad.load(tmp_path / "spinn.anydim")
    feeds = {"x": batch.x, "length": batch.length}
    assert (loaded(**feeds)["h"] == model(**feeds)["h"]).all()


def test_tables_are_updated_in_place() -> None:
    model = shift_reduce.compiled(shift_reduce.weights(6, 8, 4), 1)
    regions = model.program.regions
    (loop,) = (
        step for region in regions for step in region.steps if isinstance(step, LoopStep)
    )  # fmt: skip
    body = regions[loop.body]
    updates = [
        pair for step in body.steps if isinstance(step, SegmentStep) for pair in step.updates
    ]
    assert len(updates) == len(loop.stacks) > 10

"""Promise: definitions may be called inside expressions, in every kind of definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition

TEXT = """
def fib(int64 n; size depth = 50) -> (f) { f = n < 2 ? n : fib(n - 1) + fib(n - 2) }
def ackermann(int64 m, int64 n; size depth = 2000) -> (r) {
  r = m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1))
}
def last(int64 n; size depth = 1) -> (r) { r = n > 0 ? last(n - 1) : n }
def gcd(int64 a, int64 b) -> (a) { while b != 0 { t = a % b a = b b = t } }
def lcm(int64(B) x, int64(B) y) -> (r) { r(b) = x(b) * y(b) / gcd(x(b), y(b)) }
def gcd_of_three(int64(B) x, int64(B) y, int64(B) z) -> (r) {
  r(b) = gcd(x(b), gcd(y(b), z(b))) + 1
}
def square(int64 x) -> (y) { y = x * x }
def sums(int64(N) x) -> (y) { for t in N { y(t) = square(x(t)) + (y(t - 1) else 0) } }
def each(int64(N) x) -> (y) { for t in N { y(t) = square(x(t)) } }
def root(int64 x) -> (y) { y = 0  while square(y) < x { y += 1 } }
def both(int64 n) -> (y) { y = n > 3 && square(n) < 40 }
def either(int64 n) -> (y) { y = n > 3 || square(n) < 3 }
def named(int64 n) -> (y) { y = s * s where s = square(n) }
def chosen(int64 n) -> (y) {
  if square(n) > 10 { y = 1 } else if square(n + 1) > 5 { y = 2 } else { y = 3 }
}
def scaled(float(N) x, int64 n) -> (y) { y(i) = x(i) * float(square(n)) }
def positive(float x, int64 at) -> (y) { y = at != 0 ? at_least(x) : false }
def at_least(float x) -> (y) { y = x > 1 }
def typed(int64 n, float x) -> (y) { y = n > 0 ? times(x) + 1 : 0 }
def times(float x) -> (y) { y = 2.5 * x }
def total(int64(B) x) -> (s) { s +=! square(x(b)) }
def outer(int64(B) x, int64(C) y) -> (z) { z(b,c) = square(x(b)) - square(y(c)) }
def placed(int64(N) x, int64 n) -> (y) { y(i) = x(i)  y(square(n)) += square(n + 1) }
def attend(float(N,D) q, float(M,D) k, float(M,V) v) -> (y) {
  y = matmul(softmax(matmul(q, transpose(k))), v)
}
def relu(float x) -> (y) { y = x + 100 }
def own(float x) -> (y) { y = relu(x) + 1 }
"""


@pytest.fixture(scope="module")
def lib() -> Any:
    return ad.define(TEXT)


CALLS = [
    ("fib", (10,), 55), ("ackermann", (2, 3), 9), ("last", (9,), 0),
    ("lcm", ([4, 6], [6, 9]), [12, 18]),
    ("gcd_of_three", ([12], [18], [27]), [4]), ("sums", ([1, 2, 3],), [1, 5, 14]),
    ("each", ([2, 3],), [4, 9]), ("root", (17,), 5), ("both", (5,), True), ("both", (9,), False),
    ("both", (2,), False), ("either", (9,), True), ("either", (1,), True), ("either", (2,), False),
    ("positive", (2.0, 1), True), ("positive", (2.0, 0), False), ("named", (3,), 81),
    ("chosen", (4,), 1), ("chosen", (2,), 2), ("chosen", (0,), 3),
    ("scaled", ([1.0, 2.0], 3), [9, 18]), ("typed", (1, 2.0), 6), ("total", ([1, 2, 3],), 14),
    ("outer", ([1, 2], [0, 1, 2]), [[1, 0, -3], [4, 3, 0]]), ("placed", ([5, 6, 7], 1), [5, 10, 7]),
    ("attend", ([[0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]], [[2.0, 4.0], [4.0, 8.0]]), [[3, 6]]),
    ("own", (-2.0,), 99),
]  # fmt: skip


@pytest.mark.parametrize("name, given, wanted", CALLS)
def test_values(lib: Any, name: str, given: Any, wanted: Any) -> None:
    kinds = {int: np.int64, float: np.float32}
    arrays = [np.asarray(each) for each in given]
    arrays = [each.astype(kinds[int if each.dtype.kind == "i" else float]) for each in arrays]
    np.testing.assert_allclose(lib[name](*arrays), wanted, rtol=1e-6)


RECURRENCES = """
def squared(float a) -> (r) { r = a * a }
def any(T a) -> (r) { r = a * a }
def halved(T a) -> (r) { r = a * 0.5 }
def pair(T a) -> (r, s) { r = a * a  s = int32(a) + 1 }
def times(float(M) a, T b) -> (r) { r(i) = a(i) * b }
"""
X = [1, 2, 3]
READS = [  # the text of y, from the int32 or float32 tensor x
    ("for k in 0:N { y(k) = squared((y(k-1) else 0)) + x(k) }", "float32", [1, 3, 12]),
    ("for k in 0:N { r = squared((y(k-1) else 0)) y(k) = r + x(k) }", "float32", [1, 3, 12]),
    ("for k in 0:N { y(k) = any((y(k-1) else 0)) + x(k) }", "x", [1, 3, 12]),
    ("for k in 0:N { y(k) = any(any((y(k-1) else 0))) + x(k) }", "x", [1, 3, 84]),
    ("for k in 0:N { y(k) = halved((y(k-1) else 0)) + x(k) }", "float32", [1, 2.5, 4.25]),
    ("for k in 0:N { y(k) = any((y(k-1) else 0.5)) + x(k) }", "float32", [1.25, 3.5625, 15.691406]),
    ("for k in N-1:-1:-1 { y(k) = any((y(k+1) else 0)) + x(k) }", "x", [122, 11, 3]),
    ("for k in 0:N { p, q = pair((y(k-1) else 0)) y(k) = p + q * 0 + x(k) }", "x", [1, 3, 12]),
    ("for k in 0:N { if k > 0 { y(k) = any(y(k-1)) + x(k) } else { y(k) = x(k) } }", "x",
     [1, 3, 12]),
    ("for k in 0:N { y(k) = any((y(k-1) else 1)) }", "int64", [1, 1, 1]),
    ("z(i) = float(x(i)) for k in 0:N { v = times(z, (y(k-1) else 1)) y(k) = v(k) }", "float32",
     [1, 2, 6]),
    ("for k in 0:N { a(k) = any((b(k-1) else 0)) + x(k) b(k) = any((a(k) else 0)) } y(k) = b(k)",
     "x", [1, 9, 7056]),
    ("for k in 0:N { for j in 0:2 { z(k,j) = any((z(k-1,j) else 0)) + x(k) } } y(k) = z(k,0)",
     "x", [1, 3, 12]),
    ("p = 0 for k in 0:N { p = any(p) + x(k) } y = p", "x", 12),
    ("y = 0 k = 0 while k < 3 { y = any(y) + 1 k += 1 }", "int64", 5),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("text, kind, wanted", READS)
def test_an_argument_that_reads_what_the_loop_assigns(
    text: str, kind: str, wanted: Any, dtype: str
) -> None:
    name = {"float32": "float", "int32": "int32"}[dtype]
    lib = ad.define(RECURRENCES + f"def main({name}(N) x) -> (y) {{ {text} }}")
    found = np.asarray(lib.main(np.array(X, dtype)))
    assert found.dtype == (dtype if kind == "x" else kind)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("for k in 0:N { y(k) = any(y(k-1)) + x(k) }", "give the read of an element a default"),
        ("for k in 0:N { y(k) = squared(y(k-1)) + x(k) }", "give the read a default"),
        ("for k in 0:N { v = times(y, 2) y(k) = v(k) }", "before the loop"),
    ],
)
def test_an_argument_that_depends_only_on_its_call(text: str, problem: str) -> None:
    with pytest.raises(ad.LanguageError, match=problem):
        lib = ad.define(RECURRENCES + f"def main(float(N) x) -> (y) {{ {text} }}")
        lib.main(np.array(X, np.float32))


STRUCTURES = """
type Expr { number(float v); both(int op, Expr a, Expr b) }
type List<A> { nil; cons(A head, List<A> tail) }
type Search { empty; item(float key, Search low, Search high) }
def value(Expr e) -> (r) {
  match e {
    number(v) { r = v }
    both(op, a, b) { r = op == 0 ? value(a) + value(b) : value(a) * value(b) }
  }
}
def squares(List<float> l) -> (r) {
  match l { nil { r = nil } cons(x, rest) { r = cons(x * x, squares(rest)) } }
}
def backwards(List<float> l, List<float> made) -> (r) {
  match l { nil { r = made } cons(x, rest) { r = backwards(rest, cons(x, made)) } }
}
def ended(List<float> l) -> (r) {
  match l { nil { r = cons(1, cons(2, nil)) } cons(x, rest) { r = cons(x, ended(rest)) } }
}
def inserted(Search t, float v) -> (r) {
  match t {
    empty { r = item(v, empty, empty) }
    item(key, low, high) {
      r = v < key ? item(key, inserted(low, v), high) : item(key, low, inserted(high, v))
    }
  }
}
"""


def made_list(*values: float) -> Any:
    return ("cons", values[0], made_list(*values[1:])) if values else ("nil",)


def test_structures() -> None:
    lib = ad.define(STRUCTURES)
    three, sum_of = ("number", 3.0), ("both", 0, ("number", 2.0), ("number", 5.0))
    assert float(lib.value(("both", 1, three, sum_of))) == 21
    assert lib.squares(made_list(2.0, 3.0)).nested() == made_list(4, 9)
    assert lib.backwards(made_list(1.0, 2.0, 3.0), made_list()).nested() == made_list(3, 2, 1)
    assert lib.ended(made_list(5.0)).nested() == made_list(5, 1, 2)
    tree: Any = ("empty",)
    for value in (2.0, 1.0, 3.0):
        tree = lib.inserted(tree, np.float32(value)).nested()
    leaf = ("empty",), ("empty",)
    assert tree == ("item", 2, ("item", 1, *leaf), ("item", 3, *leaf))


def test_the_text_of_such_a_definition_parses_to_it() -> None:
    for definition in parse(TEXT).values():
        others = "".join(print_definition(each) for each in definition.callees)
        family = "".join(
            print_definition(e) for e in definition.family if e.name != definition.name
        )
        text = print_definition(definition)
        assert parse(text + others + family)[definition.name] == definition

"""Promise: a result that begins as a literal has the type of what other cases combine with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.interpreter.run import run

TEXT = """
type List<A> { nil; cons(A head, List<A> tail) }
def halves(List<half> l) -> (s) { match l { nil { s = 0.0 } cons(x, r) { q = halves(r) s = x + q } } }
def ints(List<int32> l) -> (s) { match l { nil { s = 7 } cons(x, r) { q = ints(r) s = x + q } } }
def count(List<float> l) -> (n) { match l { nil { n = 0 } cons(x, r) { q = count(r) n = q + 1 } } }
def both(List<double> l) -> (s, n) {
  match l { nil { s = 0.0 n = 0 } cons(x, r) { p, q = both(r) s = x + p n = q + 1 } } }
def mixed(List<int8> l) -> (s) { match l { nil { s = 0.5 } cons(x, r) { q = mixed(r) s = x + q } } }
def largest(List<half(D)> l) -> (s) {
  match l { nil { s = 0 } cons(x, r) { q = largest(r) t max=! x(i) s = max(t, q) } } }
def even(List<half> l) -> (s) { match l { nil { s = 1.0 } cons(x, r) { s = odd(r) } } }
def odd(List<half> l) -> (s) { match l { nil { s = 2.0 } cons(x, r) { q = even(r) s = x + q } } }
"""  # noqa: E501
LIBRARY = ad.define(TEXT)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize(
    ("name", "head", "types"),
    [
        ("halves", np.float16, ["float16"]),
        ("ints", np.int32, ["int32"]),
        ("count", np.float32, ["int64"]),
        ("both", np.float64, ["float64", "int64"]),
        ("mixed", np.int8, ["float32"]),
        ("largest", np.float16, ["float16"]),
        ("even", np.float16, ["float16"]),
        ("odd", np.float16, ["float16"]),
    ],
)
def test_the_types_of_results(name: str, head: Any, types: list[str]) -> None:
    function, tree = LIBRARY[name], ("nil",)
    for number in (3, 2, 1):
        value = np.array([number, 1], head) if name == "largest" else head(number)
        tree = ("cons", value, tree)
    made = function(tree)
    made = made if isinstance(made, tuple) else (made,)
    assert [each.dtype.name for each in map(np.asarray, made)] == types
    answer = run(function.definition, [tree], {}).values()
    assert [each.kind for each in answer] == types
    for each, wanted in zip(made, answer):
        np.testing.assert_allclose(each, wanted.values)

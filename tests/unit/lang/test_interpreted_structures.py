"""Promise: the interpreter evaluates definitions over structures node by node, of any depth."""

import numpy as np
import pytest

from anydim.base.errors import InputError
from anydim.lang.surface.parser import parse
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import run
from tests.unit.lang.test_structure_syntax import TEXT

FOUND = parse(TEXT)
LIST = "type List<A> { nil; cons(A head, List<A> tail) }\n"
BUSH = "type Bush { bush(float(D) x, Bush(K) children) }\n"


def listed(*values):
    """The values as a List."""
    made = ("nil",)
    for value in reversed(values):
        made = ("cons", value, made)
    return made


def ran(text, *arguments, name="f", **attributes):
    """The element type and the value of the result of a definition."""
    (result,) = run(parse(text)[name], list(arguments), attributes).values()
    return result.kind, result.values.tolist()


def tree(chance, leaves):
    if leaves == 1:
        return ("leaf", chance.normal(size=3).astype("float32"))
    left = int(chance.integers(1, leaves))
    return ("node", tree(chance, left), tree(chance, leaves - left))


def lstm(t, w, u):
    """The definition `tree_lstm` by numpy."""
    if t[0] == "leaf":
        return np.tanh(t[1] @ w), t[1] @ w
    (hl, cl), (hr, cr) = lstm(t[1], w, u), lstm(t[2], w, u)
    i = hl @ u[0] + hr @ u[1]
    c = (cl + cr) / (1 + np.exp(-i))
    return np.tanh(c), c


@pytest.mark.parametrize("leaves", [1, 2, 9])
def test_trees_beside_numpy(leaves):
    chance = np.random.default_rng(leaves)
    t, w, u = tree(chance, leaves), chance.normal(size=(3, 4)), chance.normal(size=(2, 4, 4))
    results = run(FOUND["tree_lstm"], [t, w, u])
    for result, value in zip(results.values(), lstm(t, w, u)):
        np.testing.assert_allclose(result.values, value, rtol=1e-6, atol=1e-7)
    v = chance.normal(size=(4, 2))
    y = run(FOUND["classify"], [t, w, u, v])["y"]
    np.testing.assert_allclose(y.values, lstm(t, w, u)[0] @ v, rtol=1e-6, atol=1e-7)


def test_deep_structures_do_not_use_pythons_stack():
    result = run(FOUND["total"], [listed(*[1.0] * 3000)])["s"]
    assert result.values == 3000


@pytest.mark.parametrize("count", range(5))
def test_definitions_that_call_each_other(count):
    results = [run(FOUND[name], [listed(*[1.0] * count)])["y"] for name in ("even", "odd")]
    assert [result.values.tolist() for result in results] == [1 - count % 2, count % 2]


def test_several_structures():
    chance = np.random.default_rng(0)
    first, second = tree(chance, 3), tree(chance, 4)
    assert run(FOUND["same"], [first, first])["y"].values == 1
    assert run(FOUND["same"], [first, second])["y"].values == 0


SUMS = (
    LIST
    + """def f(List<T> l) -> (s) {
  match l { nil { s = 0 } cons(x, rest) { t = f(rest)  s = x + t } }
}"""
)


@pytest.mark.parametrize("values, kind, total", [
    ([1.5, 2.5], "float32", 4.0), ([np.float64(1.5)], "float64", 1.5), ([1, 2], "int64", 3),
    ([np.int8(100), np.int8(100)], "int8", -56),
])  # fmt: skip
def test_a_type_variable_is_that_of_the_fields(values, kind, total):
    assert ran(SUMS, listed(*values)) == (kind, total)


def test_a_result_has_the_common_type_of_its_cases():
    text = (
        LIST
        + """def f(List<float> l) -> (s) {
      match l { nil { s = 1 } cons(x, rest) { t = f(rest)  s = x + t / 2 } }
    }"""
    )
    assert ran(text, listed()) == ("float32", 1.0)
    assert ran(text, listed(0.0)) == ("float32", 0.5)


def test_a_tensor_of_one_case_keeps_its_own_type():
    text = (
        LIST
        + """def f(List<float> l) -> (s) {
      match l { nil { n = 1  s = float(n / 2) } cons(x, _) { n = x  s = n / 2 } }
    }"""
    )
    assert ran(text, listed()) == ("float32", 0.0)
    assert ran(text, listed(1.0)) == ("float32", 0.5)


ACCUMULATED = (
    LIST
    + """
def g(List<float> l, float(N) sum, float scale) -> (y) {
  match l {
    nil { y(i) = scale * sum(i) }
    cons(x, rest) {
      next(i) = sum(i) + x * i
      y = g(rest, next, 0.5)
    }
  }
}
def f(List<float> l, float(N) zero) -> (y) { y = g(l, zero, 1.0) }
"""
)


def test_accumulators():
    zero = np.zeros(3, "float32")
    assert ran(ACCUMULATED, listed(1.0, 3.0), zero) == ("float32", [0.0, 2.0, 4.0])
    assert ran(ACCUMULATED, listed(), zero) == ("float32", [0.0, 0.0, 0.0])


def test_results_may_grow():
    text = (
        LIST
        + """def f(List<float> l) -> (y) {
      match l {
        nil { y(i) = 0.0 where i in 0:0 }
        cons(x, rest) {
          t = f(rest)
          y(i) = i < 1 ? x : (t(i - 1) else 0) where i in 0:t.0 + 1
        }
      }
    }"""
    )
    assert ran(text, listed(1.0, 2.0, 3.0)) == ("float32", [1.0, 2.0, 3.0])


FORWARD = (
    BUSH
    + """def f(Bush b, float(D,H) W) -> (h) {
  match b {
    bush(x, children) {
      below = f(children, W)
      h(j) +=! x(d) * W(d,j)
      h(j) += below(k,j)
      h(j) *= float(K + 1)
    }
  }
}"""
)


def test_any_number_of_structures():
    x, w = np.ones(2, "float32"), np.ones((2, 3), "float32")
    leaf = ("bush", x, [])
    assert ran(FORWARD, leaf, w) == ("float32", [2.0] * 3)
    assert ran(FORWARD, ("bush", x, [leaf, leaf]), w) == ("float32", [18.0] * 3)
    assert ran(FORWARD, ("bush", x, [leaf, ("bush", x, [leaf])]), w) == ("float32", [36.0] * 3)


def test_any_number_of_structures_of_another_definition():
    text = """type Rose { tip(float x); rose(Many(K) many) }
    type Many { many(Rose r) }
    def f(Rose r) -> (y) { match r { tip(x) { y = x } rose(all) { a = g(all)  y +=! a(k) } } }
    def g(Many m) -> (y) { match m { many(r) { y = f(r) } } }"""
    none = ("rose", [])
    assert ran(text, none) == ("float32", 0.0)
    assert ran(text, ("rose", [("many", ("tip", 2.0)), ("many", none)])) == ("float32", 2.0)


def test_plain_callees_and_attributes():
    text = (
        LIST
        + """
    def scaled(float(N) x; float by = 2.0) -> (y) { y(i) = by * x(i) }
    def f(List<float(D)> l; float by = 1.0) -> (y) {
      match l {
        nil { y(d) = 1.0 where d in 0:D }
        cons(x, rest) {
          a = f(rest; by = by)
          b = scaled(a; by = by)
          y(d) = b(d) + x(d)
        }
      }
    }"""
    )
    rows = [np.array(row, "float32") for row in ([1, 2], [3, 4])]
    assert ran(text, listed(*rows), by=3.0) == ("float32", [19.0, 23.0])


def test_sizes_of_fields_reach_nodes_without_them():
    text = (
        LIST
        + """
    def f(List<float(D)> l) -> (y) { y = g(l) }
    def g(List<float(E)> l) -> (y) {
      match l { nil { y = float(E) } cons(_, rest) { y = g(rest) } }
    }"""
    )
    assert ran(text, listed(np.ones(5, "float32"))) == ("float32", 5.0)


def test_matches_inside_cases():
    chance = np.random.default_rng(0)
    leaf = ("leaf", np.array([2, 3, 0], "float32"))
    assert run(FOUND["nested"], [leaf])["y"].values == 1
    assert run(FOUND["nested"], [("node", leaf, tree(chance, 2))])["y"].values == 6
    inner = ("node", leaf, leaf)
    assert run(FOUND["nested"], [("node", inner, leaf)])["y"].values == 7


@pytest.mark.parametrize("value, problem", [
    (("con", 1.0), "is no List<float>"), (("cons", 1.0), "has 1 fields, expected 2"),
    ("nil", "is no List<float>"), (("cons", [1.0], ("nil",)), "has 1 axes, expected 0"),
])  # fmt: skip
def test_values_that_are_no_structures(value, problem):
    with pytest.raises(InputError, match=problem):
        run(FOUND["total"], [value])


def test_sizes_that_differ():
    x = ("leaf", np.ones(2, "float32"))
    y = ("leaf", np.ones(3, "float32"))
    weights = [np.ones((2, 4), "float32"), np.ones((2, 4, 4), "float32")]
    with pytest.raises(InputError, match="size"):
        run(FOUND["tree_lstm"], [("node", x, y), *weights])
    with pytest.raises(InputError, match="size"):
        run(FOUND["tree_lstm"], [y, *weights])


def test_a_size_that_no_structure_has_is_not_guessed():
    text = (
        LIST
        + """def f(List<float(D)> l) -> (y) {
      match l { nil { y(d) = 0.0 where d in 0:D } cons(x, _) { y(d) = x(d) } }
    }"""
    )
    with pytest.raises(NotCovered):
        ran(text, listed())

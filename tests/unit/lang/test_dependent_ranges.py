"""Promise: ranges do not depend on the order in which sizes are found, nor on loops beside."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import DimError, LanguageError
from tests.unit.lang.language import check, random

STATE = "s = 0.0\n for t in N { s += x(t) }"
TOP = "top(i) = x(i + 1) where i in 0:N-1"
CALLED = "def doubled(T(...s) x) -> (y) { y(...s) = 2 * x(...s) }\n"


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_a_statement_beside_a_loop_has_the_range_of_all_that_it_reads(n):
    text = f"def f(float(N) x) -> (y) {{ {STATE}\n {TOP}\n y(i) = top(i) - x(i) + s }}"
    x = random(n)
    check(text, np.diff(x) + x.sum() if n else x, x)


@pytest.mark.parametrize("first, second", [(TOP, STATE), (STATE, TOP)])
@pytest.mark.parametrize("last", [
    "y(i) = x(i) + s where i in 0:top.0",
    "few(i) = top(i) * x(i)\n y(i) = s + few(i) / top(i)",
    "y(i) = 0 where i in 0:top.0\n for t in 0:top.0 { y(t) = x(t) + s }",
])  # fmt: skip
def test_a_chain_of_ranges_in_any_order(first, second, last):
    text = f"def f(float(N) x) -> (y) {{ {first}\n {second}\n {last} }}"
    for n in (2, 5):
        x = np.arange(n, dtype="float32") + 1
        check(text, x[:-1] + x.sum(), x)


@pytest.mark.parametrize("n, m", [(4, 2), (2, 4), (3, 3), (0, 2), (1, 0)])
def test_ranges_of_a_mutual_recurrence_are_the_largest_that_read_in_bounds(n, m):
    text = """def f(float(T,N) x, float(T,M) z) -> (a, b) {
      a(0,i) = 1 where i in 0:min(N, M)
      b(0,i) = 2 where i in 0:min(N, M)
      for t in 1:T + 1 {
        a(t,i) = b(t - 1,i) * x(t - 1,i)
        b(t,i) = a(t - 1,i) + z(t - 1,i)
      }
    }"""
    x, z = random(3, n), random(3, m)
    least = min(n, m)
    a, b = [np.ones(least)], [np.full(least, 2.0)]
    for t in range(3):
        a, b = [*a, b[t] * x[t, :least]], [*b, a[t] + z[t, :least]]
    check(text, np.array(a, np.float32), x, z)


def test_a_statement_written_before_what_it_reads():
    text = """def f(float(N) x) -> (z) {
      for t in 0:2 {
        if t == 1 { z(i) = y(i) + x(i) }
        if t == 0 { top(i) = x(i + 1) where i in 0:N-1
                    y(i) = top(i) - x(i)
                    z(i) = y(i) }
      }
    }"""
    x = random(6)
    check(text, np.diff(x) + x[:-1], x)


def test_sizes_of_what_a_call_gives_are_known_in_loops_branches_and_attributes():
    text = f"""{CALLED} def head(float(N) x; size n = 1) -> (y) {{ y(i) = x(i) where i in 0:n }}
    def f(float(N) x) -> (y) {{
      u = doubled(x)
      y(i) = 0 where i in 0:u.0
      for t in 0:u.0 {{ if u(t) > 2 {{ y(t) = u(t) }} }}
      v = head(u; n = u.0)
      y(i) += v(i)
    }}"""
    x = np.arange(4, dtype="float32")
    assert ad.define(text).f(x).tolist() == [0, 2, 8, 12]


# ---- results of calls --------------------------------------------------------------------------


@pytest.mark.parametrize("body", [
    "y = doubled(x)\n y = doubled(z)",
    "for t in 0:2 { if t == 0 { y = doubled(x) } else { y = doubled(z) } }",
])  # fmt: skip
def test_what_calls_give_to_one_tensor_has_one_size(body):
    f = ad.define(f"{CALLED} def f(float(N) x, float(M) z) -> (y) {{ {body} }}").f
    x = np.arange(5, dtype="float32")
    assert f(x, x + 1).tolist() == [2, 4, 6, 8, 10]
    for few, many in ((x[:3], x), (x, x[:3])):
        with pytest.raises(DimError, match="of 'y' equals that of this result of 'doubled'"):
            f(few, many)


@pytest.mark.parametrize("text, problem", [
    ("def f(float(N) x, float(N,N) z) -> (y) { y = doubled(x)\n y = doubled(z) }",
     "'y' has 1 dimension, but this result of 'doubled' has 2"),
    ("def f(int32(N) x, float(N) z) -> (x) { x = doubled(z) }",
     "'x' holds int32, but this result of 'doubled' is float32"),
    ("def f(float(3) x, float(4) z) -> (y) { y = doubled(x)\n y = doubled(z) }",
     "dimension 0 of 'y' is 3, but that of this result of 'doubled' is 4"),
])  # fmt: skip
def test_results_that_a_tensor_cannot_hold(text, problem):
    shapes = [(4, 4) if "N,N" in text else 4] if "N" in text else [4]
    first = np.zeros(4 if "N" in text else 3, "int32" if "int32" in text else "float32")
    with pytest.raises(LanguageError, match=problem.replace("(", r"\(")):
        ad.define(CALLED + text).f(first, np.zeros(shapes[0], "float32"))


def test_a_result_whose_size_differs_between_iterations():
    text = """def head(float(N) x; size n = 1) -> (y) { y(i) = x(i) where i in 0:n }
    def f(float(N) x) -> (u) { for t in 0:N { u = head(x; n = t) } }"""
    with pytest.raises(LanguageError, match="differs between iterations"):
        ad.define(text).f(np.zeros(3, "float32"))

"""Promise: the derivative of a definition is the derivative of its values, at every size."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import UserError
from anydim.lang.derivatives.scalar import FLAT, NONE, RULES
from anydim.lang.functions import FUNCTIONS
from tests.differentiable import PROGRAMS
from tests.gradients import TOLERANCE, check, values

SIZES = (0, 1, 2, 5, 7)


def last(text):
    """The last definition of a text."""
    lib = ad.define(text)
    return lib[list(lib)[-1]]


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_those_of_differences(name):
    program = PROGRAMS[name]
    definition = last(program.text).definition
    for n in SIZES:
        if n >= program.least:
            arrays = program.arguments(np.random.default_rng(n), n)
            assert check(definition, arrays, program.attributes) < TOLERANCE, n


def test_every_function_has_a_rule_or_none():
    of_users = {name for name, row in FUNCTIONS.items() if not row.internal}
    assert {*RULES, *FLAT, *NONE, "select"} >= of_users
    assert not RULES.keys() & (FLAT | NONE)


TEXTS = {
    "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }": """\
def matmul_vjp(float(M, K) A, float(K, N) B, float(M, N) dC) -> (dA, dB) {
  dA(m, k) +=! dC(m, n) * B(k, n)
  dB(k, n) +=! dC(m, n) * A(m, k)
}""",
    "def conv(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }": """\
def conv_vjp(float(N) x, float(K) w, float(max(N + 1 - K, 0)) dy) -> (dx, dw) {
  dx(i) +=! (dy(i - k) else 0.0) * w(k) where i in 0:N
  dw(k) +=! dy(i) * x(i + k) where k in 0:K, i in 0:max(N + 1 - K, 0)
}""",
    "def embed(float(V,D) E, int64(N) at) -> (y) { y(n,d) = E(at(n),d) }": """\
def embed_vjp(float(V, D) E, int64(N) at, float(N, D) dy) -> (dE) {
  dE(i0, i1) = 0.0 where i0 in 0:V, i1 in 0:D
  dE(at(n), d) += dy(n, d)
}""",
    "def decayed(float(N) x) -> (y) { for t in N { y(t) = 0.5 * (y(t - 1) else 0) + x(t) } }": """\
def decayed_vjp(float(N) x, float(N) dy) -> (dx) {
  dx(i0) = 0.0 where i0 in 0:N
  dy_2(i0) = dy(i0)
  for t in N - 1:-1:-1 {
    if t - 1 >= 0 && t - 1 < N {
      dy_2(t - 1) += dy_2(t) * 0.5
    }
    dx(t) += dy_2(t)
  }
}""",
    "def norm(float(N) x) -> (y) { top max=! x(i)  y(i) = x(i) / top }": """\
def norm_vjp(float(N) x, float(N) dy) -> (dx) {
  top max=! x(i)
  dx(i) = dy(i) / top
  dtop +=! -(dy(i) * x(i) / (top * top))
  ties +=! x(i) == top ? 1.0 : 0.0
  dx(i) += x(i) == top ? dtop / ties : 0.0
}""",
}


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_of_derivatives(text):
    assert (
        last(text).vjp.text.replace("dy(i - k) else 0.0 *", "(dy(i - k) else 0.0) *") == TEXTS[text]
    )


def test_a_derivative_that_nothing_depends_on_is_zero():
    f = last("def f(double(N) x, double z) -> (y) { y(i) = floor(x(i)) }")
    dx, dz = f.vjp(np.ones(3), 1.0, np.ones(3))
    assert (dx == 0).all() and dz == 0


def test_loops_save_only_what_they_overwrite():
    """A recurrence reads earlier values where they are; a value that is replaced is saved."""
    kept = last("def f(double(N) x) -> (y) { for t in N { y(t) = tanh((y(t-1) else 0) + x(t)) } }")
    replaced = last("def f(double(N) x) -> (s) { s = 1.0 for t in N { s = tanh(s * x(t)) } }")
    assert "saved" not in kept.vjp.text
    assert "s_saved(t) = s" in replaced.vjp.text


def test_inner_loops_start_from_values_of_outer_iterations():
    """An inner loop saves a scalar that the outer loop changed before."""
    text = """def f(double(N) a, double c) -> (s) {
      s = c * 1.0
      for t in 0:N { for u in 0:t + 1 { s = tanh(s * a(u)) } }
    }"""
    for n in SIZES:
        arrays = [np.random.default_rng(n).standard_normal(n), np.array(0.7)]
        assert check(last(text).definition, arrays) < TOLERANCE


AT_ALL_SIZES = {
    "a tensor that only inner loops write is saved once, not set back by each outer iteration": """
def f(double(N) x, double(H) w) -> (y) {
  for t in 0:3 { for s in 0:N { if t == 0 { y(s) = x(s) } else { y(s) = sin(y(s)) * x(s) } } }
}""",
    "a tensor that iterations of a loop in a branch define is not saved": """
def f(double(N) x, double(H) w) -> (y) {
  y = 1.0
  if N <= 16 {
    a(i) = x(i)
    for k in N { b(i) = a(N - 1 - i)  a(i) = a(i) * b(i) + b(k)  y *= a(k) }
  } else { y = 2.0 }
}""",
    "a tensor that a loop in a branch fills is saved": """
def f(double(N) x, double(H) w) -> (y) {
  y = 1.0
  if N > 2 { for k in N { d(k) = (d(k - 1) else 1) * x(k)  y *= d(k)  d(k) = d(k) * y } }
}""",
    "an element at a fixed position that nothing reads":
        "def f(double(N) x, double(H) w) -> (y) { y(i) = x(i) * x(4) }",
    "an element at the last position":
        "def f(double(N) x, double(H) w) -> (y) { y(i) = x(N - 1) * x(i) }",
    "a first element that is multiplied where there is one": """
def f(double(N) x, double(H) w) -> (y) {
  for t in 0:N { y(t) = sin(x(t)) }
  if N > 0 && H > 0 { y(0) *= w(H - 1) }
}""",
    "an element of an iteration that nothing reads":
        "def f(double(N) x, double(H) w) -> (y) { for t in 0:3 { y(t,j) = x(t) * w(j) } }",
}  # fmt: skip


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("text", AT_ALL_SIZES.values(), ids=AT_ALL_SIZES)
def test_derivatives_of_definitions_that_were_wrong(text):
    called = 0
    for n in SIZES:
        for h in (0, 3):
            rng = np.random.default_rng(n)
            arrays = [rng.standard_normal(n), rng.standard_normal(h)]
            try:
                values(last(text).definition, arrays, {})
            except UserError:
                continue
            called += 1
            assert check(last(text).definition, arrays) < TOLERANCE, (n, h)
    assert called >= 3


def test_the_second_derivative():
    f = last("def f(double(N) x) -> (y) { y +=! x(i) * x(i) * x(i) }")
    x, v = np.array([1.0, 2, 3]), np.array([1.0, 0, 2])
    first = f.vjp.function(x)
    dx, d_dy = first.vjp(x, 1.0, v)  # of the product of the gradient, 3 x**2, and v
    assert np.allclose(dx, 6 * x * v) and np.allclose(d_dy, (3 * x * x * v).sum())

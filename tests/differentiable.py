"""Definitions with derivatives, and arguments for them at any size: of docs, models and papers.

Each is compared with differences by numpy (tests/unit/lang/test_derivatives.py), and by torch's
gradcheck (tests/torch).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Program:
    """The last definition of `text`; `arguments(rng, n)` are arguments of size about n."""

    text: str
    arguments: Callable[[np.random.Generator, int], Arrays]
    attributes: dict[str, Any] = field(default_factory=dict)
    least: int = 0  # the smallest n


def _normal(*shapes: Callable[[int], tuple[int, ...]]) -> Callable[[Any, int], Arrays]:
    """Normal numbers in these shapes."""
    return lambda rng, n: [rng.standard_normal(shape(n)) for shape in shapes]


def _positions(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    return rng.integers(0, n, count) if n else np.zeros(0, np.int64)


LSTM = """
def lstm(T(S,B,I) x, T(B,H) h0, T(B,H) c0, T(I,4*H) W, T(H,4*H) R, T(4*H) b) -> (h, c) {
  for t in S {
    g(n,j) = b(j) where n in 0:B
    g(n,j) += x(t,n,i) * W(i,j)
    if t == 0 { g(n,j) += h0(n,k) * R(k,j) } else { g(n,j) += h(t-1,n,k) * R(k,j) }
    if t == 0 { before(n,k) = c0(n,k) } else { before(n,k) = c(t-1,n,k) }
    c(t,n,k) = sigmoid(g(n,k+H)) * before(n,k) + sigmoid(g(n,k)) * tanh(g(n,k+2*H)) where k in 0:H
    h(t,n,k) = sigmoid(g(n,k+3*H)) * tanh(c(t,n,k)) where k in 0:H
  }
}"""
ELMAN = """
def elman_rnn(T(S,B,Ci) input, T(B,Co) h0, T(Ci,Co) i2h, T(Co,Co) h2h) -> (hidden) {
  for t in S {
    if t == 0 {
      hidden(t,b,co) +=! h2h(ci,co) * h0(b,ci)
    } else {
      hidden(t,b,co) +=! h2h(ci,co) * hidden(t-1,b,ci)
    }
    hidden(t,b,co) += i2h(ci,co) * input(t,b,ci)
  }
}"""
SOFTMAX = """
def softmax(T(...p,C,...q) x) -> (y) {
  top(...p,...q)   max=! x(...p,c,...q)
  e(...p,c,...q)       = exp(x(...p,c,...q) - top(...p,...q))
  total(...p,...q) +=!   e(...p,c,...q)
  y(...p,c,...q)       = e(...p,c,...q) / total(...p,...q)
}"""
ATTENTION = """
def attention(T(B,Q,D) q, T(B,M,D) k, T(B,M,V) v) -> (y) {
  s(b,i,j) +=! q(b,i,d) * k(b,j,d)
  m(b,i) max=! s(b,i,j)
  e(b,i,j) = exp(s(b,i,j) - m(b,i))
  z(b,i) +=! e(b,i,j)
  y(b,i,c) +=! e(b,i,j) / z(b,i) * v(b,j,c)
}"""
BANDED = """
def banded(T(N,D) q, T(N,D) k, T(N,V) v; size w = 1) -> (y) {
  s(i,j) +=! q(i,d) * (k(i + j - w,d) else 0) where j in 0:2*w+1
  m(i) max=! s(i,j)
  e(i,j) = i + j - w >= 0 && i + j - w < N ? exp(s(i,j) - m(i)) : 0
  z(i) +=! e(i,j)
  y(i,c) +=! e(i,j) / z(i) * (v(i+j-w,c) else 0) where c in 0:V
}"""
LAYER_NORM = """
def layer_norm(T(...p,N) x, T(N) scale, T(N) shift; float eps = 1e-5) -> (y) {
  total(...p) +=! x(...p,n)
  mean(...p) = total(...p) / N
  square(...p) +=! (x(...p,n) - mean(...p)) * (x(...p,n) - mean(...p))
  y(...p,n) = (x(...p,n) - mean(...p)) * rsqrt(square(...p) / N + eps) * scale(n) + shift(n)
}"""
RMS_NORM = """
def rms_norm(T(B,C) x, T by; float eps = 1e-5) -> (y) {
  square(b) +=! x(b,c) * x(b,c)
  y(b,c) = by * x(b,c) * rsqrt(square(b) / C + eps)
}"""
BATCH_NORM = """
def batch_norm(T(N,C,L) x, T(C) scale, T(C) shift; float eps = 1e-5) -> (y) {
  total(c) +=! x(n,c,l)
  mean(c) = total(c) / (N * L)
  square(c) +=! (x(n,c,l) - mean(c)) * (x(n,c,l) - mean(c))
  y(n,c,l) = (x(n,c,l) - mean(c)) * rsqrt(square(c) / (N * L) + eps) * scale(c) + shift(c)
}"""
CTC = """
def ctc(T(S,C) logp, int64(L) labels) -> (loss) {
  for t in S {
    for s in 0:2*L + 1 {
      if t == 0 {
        alpha(t,s) = s == 0 ? logp(0,0) : s == 1 ? logp(0,labels(0) else 0) else 0 : -1e9
      } else {
        same(i) = (i % 2 == 0 ? 0 : (labels(i // 2) else 0)) where i in s:s + 1
        stay = alpha(t-1,s)
        step = alpha(t-1,s-1) else -1e9
        skip = s % 2 == 1 && s > 1 && (labels(s // 2) else 0) != (labels(s // 2 - 1) else 0)
          ? (alpha(t-1,s-2) else -1e9) : -1e9
        most = max(max(stay, step), skip)
        sum = most + log(exp(stay - most) + exp(step - most) + exp(skip - most))
        alpha(t,s) = sum + (logp(t, same(0)) else 0)
      }
    }
  }
  last = alpha(S - 1, 2*L)
  before = alpha(S - 1, 2*L - 1) else -1e9
  top = max(last, before)
  loss = -(top + log(exp(last - top) + exp(before - top)))
}"""
VITERBI = """
def soft_viterbi(T(S,K) emission, T(K,K) transition, T(K) start) -> (score) {
  for t in S {
    if t == 0 {
      alpha(t,k) = start(k) + emission(t,k)
    } else {
      top(k) max=! alpha(t-1,j) + transition(j,k)
      total(k) +=! exp(alpha(t-1,j) + transition(j,k) - top(k))
      alpha(t,k) = emission(t,k) + top(k) + log(total(k))
    }
  }
  most max=! alpha(S - 1,k)
  sum +=! exp(alpha(S - 1,k) - most)
  score = most + log(sum)
}"""
SOFT_DTW = """
def soft_dtw(T(N) a, T(M) b) -> (distance) {
  for i in 0:N + 1 {
    for j in 0:M + 1 {
      if i == 0 {
        d(i,j) = j
      } else if j == 0 {
        d(i,j) = i
      } else {
        d(i,j) = -log(exp(-d(i - 1,j)) + exp(-d(i,j - 1)) + exp(-d(i - 1,j - 1)))
          + (a(i - 1) - b(j - 1)) * (a(i - 1) - b(j - 1))
      }
    }
  }
  distance = d(N,M)
}"""
RETENTION = """
def retention(T(S,D) q, T(S,D) k, T(S,V) v, T decay) -> (y) {
  for t in 0:S {
    state(t,d,e) = decay * (state(t-1,d,e) else 0) + k(t,d) * v(t,e)
    y(t,e) +=! q(t,d) * state(t,d,e)
  }
}"""
POWER = """
def power_iteration(T(N,N) A, T(N) x; int iterations = 3) -> (x) {
  for t in 0:iterations {
    y(i) +=! A(i,j) * x(j)
    norm max=! abs(y(i))
    x(i) = y(i) / norm
  }
}"""
ALTERNATE = """
def alternate(T(N) x, bool(N) flip, T s) -> (y) {
  sign = s
  for t in N {
    if flip(t) { sign *= -x(t) }
    y(t) = sign * x(t)
  }
}"""
RAGGED = """
def ragged(T(B,S) x, int64(B) length) -> (y) {
  y(b,t) = -1 where exists x(b,t)
  for b in 0:B {
    for t in 0:length(b) { y(b,t) = (y(b,t - 1) else 0) * 0.5 + x(b,t) * x(b,t) }
  }
}"""
SPARSE = """
def sparse(T(Z) val, int64(Z) col, int64(P) ptr, T(V,F) x) -> (y) {
  y(r,f) +=! val(z) * x(col(z),f) where r in 0:P-1, z in ptr(r):ptr(r+1)
}"""
SHRINKING = """
def elimination(T(B,N,N) x) -> (y) {
  y(b) = 1 where b in 0:B
  a(b,i,j) = x(b,i,j)
  for l in N {
    upper(b,j) = a(b,l,j)
    share(b,i) = a(b,i,l) / (a(b,l,l) * a(b,l,l) + 2)
    a(b,i,j) = (i == l + 1 ? upper(b,j) : a(b,i,j)) - share(b,i) * upper(b,j)
      where i in l + 1:N, j in l + 1:N
    y(b) *= upper(b,l)
  }
}"""
CALLS = """
def moments(T(...p,N) x) -> (mean, variance) {
  total(...p) +=! x(...p,n)
  mean(...p) = total(...p) / N
  square(...p) +=! (x(...p,n) - mean(...p)) * (x(...p,n) - mean(...p))
  variance(...p) = square(...p) / N
}
def attend(T(N,D) q, T(M,D) k, T(M,V) v) -> (y, m) {
  t = transpose(k)
  scores = matmul(q, t)
  weights = softmax(scores)
  y = matmul(weights, v)
  m, w = moments(y)
}"""


def _lstm(rng: np.random.Generator, n: int) -> Arrays:
    shapes = ((n, 2, 3), (2, 2), (2, 2), (3, 8), (2, 8), (8,))
    return [rng.standard_normal(shape) for shape in shapes]


def _ctc(rng: np.random.Generator, n: int) -> Arrays:
    scores = rng.standard_normal((n + 2, 4))
    return [scores - np.log(np.exp(scores).sum(1, keepdims=True)), rng.integers(1, 4, n // 2)]


def _sparse(rng: np.random.Generator, n: int) -> Arrays:
    ends = np.sort(rng.integers(0, n + 1, 3))
    values = rng.standard_normal(n)
    return [values, rng.integers(0, 3, n), np.array([0, *ends]), rng.standard_normal((3, 2))]


def _ragged(rng: np.random.Generator, n: int) -> Arrays:
    return [rng.standard_normal((3, n)), rng.integers(0, n + 1, 3)]


def _alternate(rng: np.random.Generator, n: int) -> Arrays:
    return [rng.standard_normal(n), rng.integers(0, 2, n).astype(bool), rng.standard_normal(())]


def _one(head: str, body: str) -> str:
    return f"def f({head}) -> (y) {{ {body} }}"


PROGRAMS = {
    "matmul": Program(
        _one("T(M,K) A, T(K,N) B", "y(m,n) +=! A(m,k) * B(k,n)"),
        _normal(lambda n: (3, n), lambda n: (n, 2)),
    ),
    "convolution": Program(
        _one("T(N,C,W) x, T(O,C,K) w", "y(n,o,i) +=! x(n,c,i + k) * w(o,c,k)"),
        _normal(lambda n: (2, 2, n + 2), lambda n: (3, 2, 3)),
    ),
    "strided convolution": Program(
        _one("T(N) x, T(K) w", "y(i) +=! x(2 * i + k) * w(k)"),
        _normal(lambda n: (n + 3,), lambda n: (3,)),
    ),
    "dilated, padded": Program(
        _one("T(N) x, T(K) w", "y(i) +=! (x(3 * i - 2 * k + 1) else 0) * w(k) where i in 0:N"),
        _normal(lambda n: (n,), lambda n: (3,)),
    ),
    "polynomials": Program(
        _one("T(N) a, T(M) b", "y(i + j) +=! a(i) * b(j)"),
        _normal(lambda n: (n + 1,), lambda n: (3,)),
    ),
    "softmax": Program(SOFTMAX, _normal(lambda n: (2, n, 3)), {"...p": 1}),
    "attention": Program(
        ATTENTION, _normal(lambda n: (2, n, 3), lambda n: (2, 4, 3), lambda n: (2, 4, 2))
    ),
    "banded attention": Program(
        BANDED, _normal(lambda n: (n, 3), lambda n: (n, 3), lambda n: (n, 2))
    ),
    "layer norm": Program(
        LAYER_NORM, _normal(lambda n: (2, n), lambda n: (n,), lambda n: (n,)), {"...p": 1}
    ),
    "rms norm": Program(RMS_NORM, _normal(lambda n: (2, n), lambda n: ())),
    "batch norm": Program(BATCH_NORM, _normal(lambda n: (3, 2, n), lambda n: (2,), lambda n: (2,))),
    "broadcast": Program(
        _one("T(...s) a, T(...s) b", "y(...s) = a(...s) * b(...s)"),
        _normal(lambda n: (n, 1), lambda n: (3,)),
    ),
    "upper triangle": Program(
        _one("T(N,M) x", "y(i,j) = x(i,j) * x(i,j) where j in i:M"), _normal(lambda n: (3, n))
    ),
    "prefix sums": Program(
        _one("T(N) x", "y(i) +=! x(k) * x(k) where i in 0:N, k in 0:i + 1"), _normal(lambda n: (n,))
    ),
    "gather": Program(
        _one("T(V,D) x, int64(N) at", "y(i,d) = x(at(i),d) * x(at(i),d)"),
        lambda rng, n: [rng.standard_normal((n, 2)), _positions(rng, n, 5)],
    ),
    "gather, some outside": Program(
        _one("T(V,D) x, int64(N) at", "y(i,d) = x(at(i),d) else 3 where d in 0:D"),
        lambda rng, n: [rng.standard_normal((n, 2)), rng.integers(-2, n + 2, 6)],
    ),
    "gather, on a condition": Program(
        _one("T(V) x, int64(N) at", "y(i) = at(i) >= 0 ? x(at(i)) * x(at(i)) : 0"),
        lambda rng, n: [rng.standard_normal(n), rng.integers(-2, n, 6)],
    ),
    "scatter": Program(
        "def f(T(V,D) table, int64(N) at, T(N,D) x) -> (table) {"
        " table(at(i),d) += x(i,d) * x(i,d) }",
        lambda rng, n: [
            rng.standard_normal((4, 2)),
            rng.integers(0, 4, n),
            rng.standard_normal((n, 2)),
        ],
    ),
    "flat": Program(
        _one("T(...s) x", "y(i) = x[i] * x[i] where i in 0:size(...s)"),
        _normal(lambda n: (n, 3)),
    ),
    "repeat": Program(_one("T(N) x", "y(i) = x(i // 2) where i in 0:2*N"), _normal(lambda n: (n,))),
    "diagonals": Program(
        _one("T(N,N) x", "y(i) = x(i,i) * x(i,N - 1 - i)"), _normal(lambda n: (n, n))
    ),
    "product": Program(
        _one("T(N,M) x", "y(i) *=! x(i,k)"),
        lambda rng, n: [np.where(rng.random((4, n)) < 0.2, 0, rng.standard_normal((4, n)))],
    ),
    "extremes": Program(
        _one("T(N,M) x, T(N) z", "y(i) = z(i)  y(i) min= x(i,k)  y(i) max= x(i,k) - 1"),
        _normal(lambda n: (3, n), lambda n: (3,)),
    ),
    "reversed in place": Program(
        _one("T(N) x", "y(i) = x(i) * x(i)  y(i) = y(N - 1 - i) * y(i)"), _normal(lambda n: (n,))
    ),
    "partial writes": Program(
        _one("T(N) x", "y(0) = x(0)  y(i) = x(i) * x(i - 1) where i in 1:N  y(N - 1) *= 2"),
        _normal(lambda n: (n,)),
        least=1,
    ),
    "functions": Program(
        _one(
            "T(N) x",
            "a(i) = abs(x(i)) + 0.5  y(i) = exp(x(i)) + log(a(i)) + sqrt(a(i)) + rsqrt(a(i))"
            " + tanh(x(i)) * sigmoid(x(i)) - erf(x(i)) / cosh(x(i)) + sin(x(i)) * cos(x(i))"
            " + tan(x(i) / 4) + asin(tanh(x(i))) + acos(tanh(x(i))) + atan(x(i)) + sinh(x(i))"
            " + asinh(x(i)) + acosh(a(i) + 1) + atanh(tanh(x(i)) / 2) + log1p(a(i))"
            " + expm1(x(i)) + pow(a(i), x(i)) + min(x(i), 0.3) * max(x(i), a(i) - 1)"
            " + x(i) % 0.7 + fmod(x(i), 0.7) + floor(x(i)) * x(i) + x(i) / a(i)",
        ),
        _normal(lambda n: (n,)),
    ),
    "lstm": Program(LSTM, _lstm),
    "elman": Program(
        ELMAN,
        _normal(lambda n: (n, 2, 3), lambda n: (2, 2), lambda n: (3, 2), lambda n: (2, 2)),
    ),
    "ctc": Program(CTC, _ctc),
    "soft viterbi": Program(
        VITERBI, _normal(lambda n: (n, 3), lambda n: (3, 3), lambda n: (3,)), least=1
    ),
    "soft dtw": Program(SOFT_DTW, _normal(lambda n: (n,), lambda n: (3,))),
    "retention": Program(
        RETENTION, _normal(lambda n: (n, 2), lambda n: (n, 2), lambda n: (n, 3), lambda n: ())
    ),
    "power iteration": Program(POWER, _normal(lambda n: (n, n), lambda n: (n,)), least=1),
    "alternate": Program(ALTERNATE, _alternate),
    "ragged": Program(RAGGED, _ragged),
    "suffix maxima": Program(
        _one("T(N) x", "for t in N-1 : -1 : -1 { y(t) = max(x(t), (y(t + 1) else -inf) * 0.9) }"),
        _normal(lambda n: (n,)),
    ),
    "steps of two": Program(
        _one("T(N) x", "y(i) = x(i)  for t in 2:N:2 { y(t) = y(t) * y(t - 2) }"),
        _normal(lambda n: (n,)),
    ),
    "sparse": Program(SPARSE, _sparse),
    "elimination": Program(SHRINKING, _normal(lambda n: (2, n, n))),
    "calls": Program(CALLS, _normal(lambda n: (n, 3), lambda n: (4, 3), lambda n: (4, 2))),
}

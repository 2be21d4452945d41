"""Programs that users of the language write, each beside numpy that was written without it.

A program has a text, the dims of each argument, and a reference in float64. `fits` leaves out
sizes at which the program is wrong by its own words (a window larger than what it slides over).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def quiet(reference: Callable[..., Any], arrays: list[Any]) -> tuple[Any, ...]:
    """The results of a reference in float64; means of nothing are NaN without a warning."""
    wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = reference(*wide)
    return found if isinstance(found, tuple) else (found,)


@dataclass(frozen=True)
class Program:
    """`arguments`: dtype and dims of each; `draw` makes those that are not plain noise."""

    name: str
    text: str
    arguments: tuple[tuple[str, tuple[Any, ...]], ...]
    reference: Callable[..., Any]
    fits: Callable[[dict[str, int]], bool] = lambda sizes: True
    draw: dict[int, Callable[[Any, dict[str, int], tuple[int, ...]], Any]] = field(
        default_factory=dict
    )
    largest: int = 7
    tolerance: float = 2e-4  # float32 sums of up to a few hundred terms

    @property
    def dims(self) -> list[str]:
        found = {d for _, dims in self.arguments for d in dims if isinstance(d, str)}
        return sorted(found)

    def sizes(self, count: int) -> list[dict[str, int]]:
        """Sizes to test at: all 0, all 1, and random ones in which 0 and 1 come often."""
        rng = np.random.default_rng(len(self.text))
        found = [dict.fromkeys(self.dims, n) for n in (0, 1, 2)]
        while len(found) < 20 * count:
            drawn = rng.integers(0, self.largest + 1, len(self.dims))
            small = rng.random(len(self.dims)) < 0.2
            values = np.where(small, rng.integers(0, 2, len(self.dims)), drawn)
            found.append(dict(zip(self.dims, map(int, values))))
        return [sizes for sizes in found if self.fits(sizes)][:count]

    def expected(self, arrays: list[np.ndarray]) -> tuple[Any, ...]:
        """The results by the reference."""
        return quiet(self.reference, arrays)

    def arrays(self, sizes: dict[str, int]) -> list[np.ndarray]:
        """Arguments for these sizes."""
        rng = np.random.default_rng(sum(sizes.values()) + len(self.name))
        made = []
        for number, (dtype, dims) in enumerate(self.arguments):
            shape = tuple(sizes.get(d, d) for d in dims)
            if number in self.draw:
                made.append(np.asarray(self.draw[number](rng, sizes, shape)).astype(dtype))
            elif dtype.startswith("float"):
                made.append(np.asarray(rng.standard_normal(shape)).astype(dtype))
            else:
                values = rng.integers(0, 2 if dtype == "bool" else 9, shape)
                made.append(np.asarray(values).astype(dtype))
        return made


def below(dim: str) -> Callable[..., Any]:
    """Indices below a dim."""
    return lambda rng, sizes, shape: rng.integers(0, max(1, sizes[dim]), shape)


F = "float32"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- references that need more than a line -------------------------------------------------------


def windows(x, width, stride=1, dilation=1):
    """[..., out, width] of the last axis."""
    span = dilation * (width - 1) + 1
    count = max(0, (x.shape[-1] - span) // stride + 1)
    rows = [x[..., i * stride : i * stride + span : dilation] for i in range(count)]
    return np.stack(rows, -2) if rows else np.zeros((*x.shape[:-1], 0, width))


def conv2d(x, w):
    n, _, h, v = x.shape
    o, _, a, b = w.shape
    y = np.zeros((n, o, max(0, h - a + 1), max(0, v - b + 1)))
    for i in range(y.shape[2]):
        for j in range(y.shape[3]):
            y[:, :, i, j] = np.tensordot(x[:, :, i : i + a, j : j + b], w, ([1, 2, 3], [1, 2, 3]))
    return y


def elman(x, h, i2h, h2h):
    out = np.zeros((len(x), *h.shape))
    for t in range(len(x)):
        h = out[t] = h @ h2h + x[t] @ i2h
    return out


def lstm(x, h, c, w, u, b):
    k = h.shape[1]
    out = np.zeros((len(x), *h.shape))
    for t in range(len(x)):
        g = x[t] @ w + h @ u + b
        i, f, z, o = (g[:, n * k : (n + 1) * k] for n in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
        h = out[t] = sigmoid(o) * np.tanh(c)
    return out, h, c


def gru(x, h, w, u):
    k = h.shape[1]
    out = np.zeros((len(x), *h.shape))
    for t in range(len(x)):
        a, b = x[t] @ w, h @ u
        r, z = (sigmoid(a[:, s] + b[:, s]) for s in (slice(0, k), slice(k, 2 * k)))
        n = np.tanh(a[:, 2 * k :] + r * b[:, 2 * k :])
        h = out[t] = (1 - z) * n + z * h
    return out


def qrnn(z, f, o):
    c = np.zeros(z.shape[1:])
    out = np.zeros(z.shape)
    for t in range(len(z)):
        c = f[t] * c + (1 - f[t]) * z[t]
        out[t] = o[t] * c
    return out


def stencil(x, steps):
    for _ in range(len(steps)):
        left, right = np.r_[0, x[:-1]][: len(x)], np.r_[x[1:], 0][: len(x)]
        x = 0.25 * left + 0.5 * x + 0.25 * right
    return x


def levenshtein(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), int)
    d[:, 0], d[0, :] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (a[i] != b[j]))
    return d[-1, -1]


def ragged_attention(q, k, v, length):
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for b in range(len(q)):
        n = length[b]
        for i in range(n):
            s = np.array([q[b, i] @ k[b, j] for j in range(n)])
            e = np.exp(s - s.max())
            out[b, i] = e @ v[b, :n] / e.sum()
    return out


def softmax(x):
    if not x.size:
        return x
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def group_norm(x, g):
    n, groups, c, s = x.shape
    flat = x.reshape(n, groups, c * s)
    with np.errstate(all="ignore"):
        flat = (flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + 1e-5)
    return flat.reshape(x.shape) * g[:, :, None]


def histogram(at, counts):
    return np.bincount(at, minlength=len(counts)).astype("int32") if len(counts) else counts


PROGRAMS = [
    Program(
        "matmul", "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        ((F, ("M", "K")), (F, ("K", "N"))), lambda a, b: a @ b,
    ),
    Program(
        "transposed matmul",
        "def f(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
        ((F, ("K", "M")), (F, ("N", "K"))), lambda a, b: a.T @ b.T,
    ),
    Program(
        "batched matmul",
        "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }",
        ((F, ("B", "M", "K")), (F, ("B", "K", "N"))), lambda a, b: a @ b,
    ),
    Program(
        "matvec", "def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }",
        ((F, ("M", "K")), (F, ("K",))), lambda a, x: a @ x,
    ),
    Program(
        "accumulating matmul",
        "def f(float(M,N) C, float(M,K) A, float(K,N) B) -> (C) { C(m,n) += A(m,k) * B(k,n) }",
        ((F, ("M", "N")), (F, ("M", "K")), (F, ("K", "N"))), lambda c, a, b: c + a @ b,
    ),
    Program(
        "1-d convolution",
        "def f(float(I) x, float(W) w) -> (y) { y(i) +=! x(i + k) * w(k) }",
        ((F, ("I",)), (F, ("W",))), lambda x, w: windows(x, len(w)) @ w,
        fits=lambda s: s["W"] > 0,
    ),
    Program(
        "2-d convolution",
        """def f(float(N,C,H,V) x, float(O,C,A,B) w) -> (y) {
          y(n,o,h,v) +=! x(n,c,h + a,v + b) * w(o,c,a,b)
        }""",
        ((F, ("N", "C", "H", "V")), (F, ("O", "C", "A", "B"))), conv2d,
        fits=lambda s: s["A"] > 0 < s["B"], largest=4,
    ),
    Program(
        "grouped convolution",
        """def f(float(G,C,I) x, float(G,O,C,W) w) -> (y) {
          y(g,o,i) +=! x(g,c,i + k) * w(g,o,c,k)
        }""",
        ((F, ("G", "C", "I")), (F, ("G", "O", "C", "W"))),
        lambda x, w: np.einsum("gcik,gock->goi", windows(x, w.shape[-1]), w),
        fits=lambda s: s["W"] > 0, largest=5,
    ),
    Program(
        "dilated convolution",
        "def f(float(I) x, float(W) w) -> (y) { y(i) +=! x(i + 2 * k) * w(k) }",
        ((F, ("I",)), (F, ("W",))), lambda x, w: windows(x, len(w), dilation=2) @ w,
        fits=lambda s: s["W"] > 0, largest=12,
    ),
    Program(
        "strided convolution",
        "def f(float(I) x, float(W) w) -> (y) { y(i) +=! x(3 * i + k) * w(k) }",
        ((F, ("I",)), (F, ("W",))), lambda x, w: windows(x, len(w), 3) @ w,
        fits=lambda s: s["W"] > 0, largest=12,
    ),
    Program(
        "average pooling",
        """def f(float(C,I) x) -> (y) {
          s(c,i) +=! x(c,2 * i + k) where k in 0:2
          y(c,i) = s(c,i) / 2
        }""",
        ((F, ("C", "I")),), lambda x: windows(x, 2, 2).mean(-1),
    ),
    Program(
        "max pooling",
        "def f(float(C,I) x) -> (y) { y(c,i) max=! x(c,2 * i + k) where k in 0:3 }",
        ((F, ("C", "I")),), lambda x: windows(x, 3, 2).max(-1),
    ),
    Program(
        "softmax",
        """def f(float(B,C) x) -> (y) {
          top(b) max=! x(b,c)
          e(b,c) = exp(x(b,c) - top(b))
          total(b) +=! e(b,c)
          y(b,c) = e(b,c) / total(b)
        }""",
        ((F, ("B", "C")),), softmax,
    ),
    Program(
        "layer normalisation",
        """def f(float(B,C) x, float(C) g, float(C) b) -> (y) {
          total(i) +=! x(i,c)
          mean(i) = total(i) / C
          square(i) +=! (x(i,c) - mean(i)) * (x(i,c) - mean(i))
          y(i,c) = (x(i,c) - mean(i)) * rsqrt(square(i) / C + 1e-5) * g(c) + b(c)
        }""",
        ((F, ("B", "C")), (F, ("C",)), (F, ("C",))),
        lambda x, g, b: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        * g + b,
    ),
    Program(
        "batch normalisation",
        """def f(float(N,C,S) x, float(C) g) -> (y) {
          total(c) +=! x(n,c,s)
          mean(c) = total(c) / (N * S)
          square(c) +=! (x(n,c,s) - mean(c)) * (x(n,c,s) - mean(c))
          y(n,c,s) = (x(n,c,s) - mean(c)) * rsqrt(square(c) / (N * S) + 1e-5) * g(c)
        }""",
        ((F, ("N", "C", "S")), (F, ("C",))),
        lambda x, g: (x - x.mean((0, 2), keepdims=True))
        / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5) * g[:, None],
    ),
    Program(
        "group normalisation",
        """def f(float(N,G,C,S) x, float(G,C) g) -> (y) {
          mean(n,i) +=! x(n,i,c,s) / (C * S)
          square(n,i) +=! (x(n,i,c,s) - mean(n,i)) * (x(n,i,c,s) - mean(n,i))
          y(n,i,c,s) = (x(n,i,c,s) - mean(n,i)) * rsqrt(square(n,i) / (C * S) + 1e-5) * g(i,c)
        }""",
        ((F, ("N", "G", "C", "S")), (F, ("G", "C"))), group_norm, largest=4,
    ),
    Program(
        "embedding sum",
        "def f(float(V,D) E, int64(B,L) I) -> (y) { y(b,d) +=! E(I(b,l),d) }",
        ((F, ("V", "D")), ("int64", ("B", "L"))), lambda e, i: e[i].sum(1),
        fits=lambda s: s["V"] > 0, draw={1: below("V")},
    ),
    Program(
        "masked",
        "def f(float(B,N) x, bool(B,N) m) -> (y) { y(b,n) = m(b,n) ? exp(x(b,n)) : -1 }",
        ((F, ("B", "N")), ("bool", ("B", "N"))), lambda x, m: np.where(m, np.exp(x), -1),
    ),
    Program(
        "upper triangle", "def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) where j in i:M }",
        ((F, ("N", "M")),), np.triu,
    ),
    Program(
        "lower triangle, where exists",
        "def f(float(N,M) x) -> (y) { y(i,j) = j <= i ? x(i,j) : 0 where exists x(i,j) }",
        ((F, ("N", "M")),), np.tril,
    ),
    Program(
        "cumulative sum",
        """def f(float(N) x) -> (y) {
          for t in 0:N { y(t) = (y(t - 1) else 0) + x(t) }
        }""",
        ((F, ("N",)),), np.cumsum,
    ),
    Program(
        "cumulative sum, branches",
        """def f(float(N,B) x) -> (y) {
          for t in N {
            if (t == 0) { y(t,b) = x(t,b) } else { y(t,b) = y(t-1,b) + x(t,b) }
          }
        }""",
        ((F, ("N", "B")),), lambda x: np.cumsum(x, 0),
    ),
    Program(
        "cumulative maximum, downwards",
        """def f(float(N) x) -> (y) {
          top = -inf
          for t in N-1 : -1 : -1 {
            top max= x(t)
            y(t) = top
          }
        }""",
        ((F, ("N",)),), lambda x: np.maximum.accumulate(x[::-1])[::-1],
    ),
    Program(
        "contraction of order 4",
        """def f(float(A,B,C,D) x, float(C,D,E,G) y) -> (z) {
          z(a,b,e,g) +=! x(a,b,c,d) * y(c,d,e,g)
        }""",
        ((F, ("A", "B", "C", "D")), (F, ("C", "D", "E", "G"))),
        lambda x, y: np.tensordot(x, y, 2), largest=3,
    ),
    Program(
        "histogram",
        """def f(int64(N) at, int32(K) like) -> (counts) {
          counts(at(i)) +=! int32(1) where exists at(i), exists like(at(i))
        }""",
        (("int64", ("N",)), ("int32", ("K",))), histogram,
        fits=lambda s: s["K"] > 0, draw={0: below("K"), 1: lambda rng, s, shape: np.zeros(shape)},
    ),
    Program(
        "scatter of rows",
        """def f(float(V,D) start, int64(N) at, float(N,D) x) -> (y) {
          y(v,d) = start(v,d)
          y(at(i),d) += x(i,d)
        }""",
        ((F, ("V", "D")), ("int64", ("N",)), (F, ("N", "D"))),
        lambda s, at, x: s + sum(np.eye(len(s))[a][:, None] * r for a, r in zip(at, x)),
        fits=lambda s: s["V"] > 0, draw={1: below("V")},
    ),
    Program(
        "nearest point",
        """def f(float(N,D) a, float(M,D) b) -> (least) {
          d(n,m) +=! (a(n,k) - b(m,k)) * (a(n,k) - b(m,k))
          least(n) min=! d(n,m)
        }""",
        ((F, ("N", "D")), (F, ("M", "D"))),
        lambda a, b: ((a[:, None] - b) ** 2).sum(-1).min(1, initial=np.inf),
    ),
    Program(
        "polynomial product",
        "def f(float(N) a, float(M) b) -> (c) { c(i + j) +=! a(i) * b(j) }",
        ((F, ("N",)), (F, ("M",))), np.convolve, fits=lambda s: s["N"] > 0 < s["M"],
    ),
    Program(
        "elman rnn",
        """def elman_rnn(float(T,B,Ci) input, float(B,Co) h0, float(Ci,Co) i2h,
                      float(Co,Co) h2h) -> (hidden) {
          for t in T {
            if t == 0 {
              hidden(t,b,co) +=! h2h(ci,co) * h0(b,ci)
            } else {
              hidden(t,b,co) +=! h2h(ci,co) * hidden(t-1,b,ci)
            }
            hidden(t,b,co) += i2h(ci,co) * input(t,b,ci)
          }
        }""",
        ((F, ("T", "B", "I")), (F, ("B", "O")), (F, ("I", "O")), (F, ("O", "O"))), elman,
        largest=5, tolerance=5e-3,
    ),
    Program(
        "lstm",
        """def lstm(float(T,B,I) x, float(B,H) h0, float(B,H) c0, float(I,G) w, float(H,G) u,
                 float(G) bias) -> (y, h, c) {
          h(b,k) = h0(b,k)
          c(b,k) = c0(b,k)
          for t in 0:T {
            g(b,n) +=! x(t,b,i) * w(i,n)
            g(b,n) += h(b,k) * u(k,n)
            c(b,k) = sigmoid(g(b,k + H) + bias(k + H)) * c(b,k)
                   + sigmoid(g(b,k) + bias(k)) * tanh(g(b,k + 2*H) + bias(k + 2*H))
            h(b,k) = sigmoid(g(b,k + 3*H) + bias(k + 3*H)) * tanh(c(b,k))
            y(t,b,k) = h(b,k)
          }
        }""",
        ((F, ("T", "B", "I")), (F, ("B", 3)), (F, ("B", 3)), (F, ("I", 12)), (F, (3, 12)),
         (F, (12,))),
        lstm, largest=5, tolerance=1e-3,
    ),
    Program(
        "gru",
        """def gru(float(T,B,I) x, float(B,H) h0, float(I,3*H) w, float(H,3*H) u) -> (y) {
          h(b,k) = h0(b,k)
          for t in 0:T {
            a(b,n) +=! x(t,b,i) * w(i,n)
            r(b,n) +=! h(b,k) * u(k,n)
            reset(b,k) = sigmoid(a(b,k) + r(b,k)) where exists h(b,k)
            update(b,k) = sigmoid(a(b,k + H) + r(b,k + H)) where exists h(b,k)
            new(b,k) = tanh(a(b,k + 2*H) + reset(b,k) * r(b,k + 2*H))
            h(b,k) = (1 - update(b,k)) * new(b,k) + update(b,k) * h(b,k)
            y(t,b,k) = h(b,k)
          }
        }""",
        ((F, ("T", "B", "I")), (F, ("B", 4)), (F, ("I", 12)), (F, (4, 12))), gru,
        largest=5, tolerance=1e-3,
    ),
    Program(
        "qrnn fo-pooling",
        """def fo_pool(float(T,B,K) z, float(T,B,K) f, float(T,B,K) o) -> (h) {
          for t in 0:T {
            c(t,b,k) = f(t,b,k) * (c(t-1,b,k) else 0) + (1 - f(t,b,k)) * z(t,b,k)
            h(t,b,k) = o(t,b,k) * c(t,b,k)
          }
        }""",
        ((F, ("T", "B", "K")),) * 3, qrnn, tolerance=1e-2,
        draw={n: lambda rng, s, shape: rng.random(shape) for n in (1, 2)},
    ),
    Program(
        "stencil over time",
        """def heat(float(N) x, float(T) steps) -> (u) {
          state(0, i) = x(i)
          for t in 0:T {
            state(t + 1, i) = 0.25 * (state(t, i - 1) else 0) + 0.5 * state(t, i)
                            + 0.25 * (state(t, i + 1) else 0) where exists x(i)
          }
          u(i) = state(T, i)
        }""",
        ((F, ("N",)), (F, ("T",))), stencil,
    ),
    Program(
        "levenshtein",
        """def levenshtein(int32(N) a, int32(M) b) -> (distance) {
          for i in 0:N+1 {
            for j in 0:M+1 {
              if i == 0 {
                d(i,j) = int32(j)
              } else if j == 0 {
                d(i,j) = int32(i)
              } else {
                d(i,j) = min(min(d(i-1,j) + 1, d(i,j-1) + 1),
                             d(i-1,j-1) + (a(i-1) == b(j-1) ? 0 : 1))
              }
            }
          }
          distance = d(N,M)
        }""",
        (("int32", ("N",)), ("int32", ("M",))), levenshtein,
        draw={n: lambda rng, s, shape: rng.integers(0, 3, shape) for n in (0, 1)},
    ),
    Program(
        "ragged attention",
        """def attention(float(B,T,D) q, float(B,T,D) k, float(B,T,E) v, int64(B) length) -> (y) {
          y(b,t,e) = 0 where exists v(b,t,e)
          for b in 0:B {
            for t in 0:length(b) {
              s(j) +=! q(b,t,d) * k(b,j,d)
              top = -inf
              for j in 0:length(b) { top max= s(j) }
              total = 0.0
              for j in 0:length(b) {
                total += exp(s(j) - top)
                y(b,t,e) += exp(s(j) - top) * v(b,j,e)
              }
              y(b,t,e) = y(b,t,e) / total
            }
          }
        }""",
        ((F, ("B", "T", "D")), (F, ("B", "T", "D")), (F, ("B", "T", "E")), ("int64", ("B",))),
        ragged_attention, largest=5,
        draw={3: lambda rng, s, shape: rng.integers(0, s["T"] + 1, shape)},
    ),
]  # fmt: skip

"""Definitions over structures, and what each means: the same recursion in Python, in float64.

Nothing here is of the compiler. Structures are nested tuples, and an object may occur in several
places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from bench.structure_texts import TREE_LSTM

TEXT = (
    """
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
type List<A> { nil; cons(A head, List<A> tail) }
type Bush { bush(float(D) x, Bush(K) children) }
type Expr { number(float v); add(Expr a, Expr b); mul(Expr a, Expr b); neg(Expr a) }
type Even { end; more(float x, Odd rest) }
type Odd { more(int x, Even rest) }
type Cell { none; cell(float(D) x, Cell up, Cell left) }
type Rose { petal(int x); stem(float y, Rose(K) parts, Rose first) }

def total(List<float> l) -> (s) {
  match l { nil { s = 0.0 } cons(x, rest) { r = total(rest)  s = x + r } }
}
def halves(List<half> l) -> (s) {
  match l { nil { s = 0 } cons(x, rest) { r = halves(rest)  s = x + r } }
}
def doubles(List<double> l) -> (s) {
  match l { nil { s = 1 } cons(x, rest) { r = doubles(rest)  s = x * r } }
}
def ints(List<int> l) -> (s) {
  match l { nil { s = 7 } cons(x, rest) { r = ints(rest)  s = 3 * x - r } }
}
def rows(List<float(2,D)> l) -> (s, n) {
  match l {
    nil { s = 0.0  n = 0 }
    cons(x, rest) { r, m = rows(rest)  q +=! x(i,d)  s = q + r  n = m + 1 }
  }
}
def length(List<float> l) -> (n) {
  match l { nil { n = 0 } cons(_, rest) { r = length(rest)  n = r + 1 } }
}
def child_sum(Bush t, float(4,D,H) W, float(4,H,H) U) -> (h, c) {
  match t { bush(x, children) {
    hk, ck = child_sum(children, W, U)
    s(j) +=! hk(k,j)
    p(q,j) +=! W(q,d,j) * x(d)
    g(q,j) +=! U(q,m,j) * s(m)
    f(k,j) +=! U(3,m,j) * hk(k,m)
    i(j) = sigmoid(p(0,j) + g(0,j))
    o(j) = sigmoid(p(1,j) + g(1,j))
    u(j) = tanh(p(2,j) + g(2,j))
    fc(j) +=! sigmoid(p(3,j) + f(k,j)) * ck(k,j)
    c(j) = i(j) * u(j) + fc(j)
    h(j) = o(j) * tanh(c(j))
  } }
}
def widest(Bush t) -> (n, m) {
  match t { bush(x, children) {
    a, b = widest(children)
    c max=! a(k)
    e +=! b(k)
    n = max(c, K)
    m = e + 1
  } }
}
def roses(Rose t) -> (s) {
  match t {
    petal(x) { s = x * 0.5 }
    stem(y, parts, first) {
      a = roses(parts)
      b = roses(first)
      r +=! a(k) * (k + 1)
      s = y * r - b
    }
  }
}
def value(Expr e) -> (v) {
  match e {
    number(x) { v = x }
    add(a, b) { p = value(a)  q = value(b)  v = p + q }
    mul(a, b) { p = value(a)  q = value(b)  v = p * q }
    neg(a) { p = value(a)  v = -p }
  }
}
def dots(List<float> a, List<float> b) -> (s) {
  match a, b {
    cons(x, p), cons(y, q) { r = dots(p, q)  s = r + x * y }
    _, _ { s = 0.0 }
  }
}
def same(Tree s, Tree t) -> (y) {
  match s, t {
    leaf(_), leaf(_) { y = 1 }
    node(a, b), node(c, d) { p = same(a, c)  q = same(b, d)  y = p * q }
    _, _ { y = 0 }
  }
}
def even(List<float> l) -> (s) {
  match l { nil { s = 1.0 } cons(x, rest) { s = odd(rest) } }
}
def odd(List<float> l) -> (s) {
  match l { nil { s = 0.0 } cons(x, rest) { s = even(rest) } }
}
def evens(Even t) -> (s) { match t { end { s = 0 } more(x, rest) { r = odds(rest)  s = x + r } } }
def odds(Odd t) -> (s) { match t { more(x, rest) { r = evens(rest)  s = x * r } } }
def pairs(List<float> l) -> (s) {
  match l { cons(x, cons(y, rest)) { r = pairs(rest)  s = r + x * y } _ { s = 0.0 } }
}
def spine(Tree t) -> (s) {
  match t {
    node(node(a, b), node(leaf(x), c)) {
      p = spine(a)  q = spine(b)  r = spine(c)
      y +=! x(d)
      s = p * q - r + y
    }
    node(leaf(x), other) { r = spine(other)  y +=! x(d)  s = 0.5 * r + y }
    node(_, leaf(_)) { s = 3.0 }
    leaf(x) { s +=! x(d) * x(d) }
    node(a, b) { p = spine(a)  q = spine(b)  s = p + 2 * q }
  }
}
def sum_tree(Tree t) -> (s) {
  match t { leaf(x) { s +=! x(d) } node(l, r) { a = sum_tree(l)  b = sum_tree(r)  s = a + b } }
}
def nodes(Tree t) -> (n) {
  match t { leaf(_) { n = 1 } node(l, r) { a = nodes(l)  b = nodes(r)  n = a + b + 1 } }
}
def deep(Tree t) -> (n) {
  match t { leaf(_) { n = 0 } node(l, r) { a = deep(l)  b = deep(r)  n = max(a, b) + 1 } }
}
def classify(Tree t, float(C) V) -> (y, z) {
  s = sum_tree(t)
  n = nodes(t)
  y(k) = V(k) * s
  z = s / n
}
def running(Tree t) -> (h) {
  match t {
    leaf(x) { for i in 0:D { h(i) = (h(i - 1) else 0) + x(i) } }
    node(l, r) {
      a = running(l)
      b = running(r)
      for i in 0:a.0 { h(i) = 0.5 * (h(i - 1) else 0) + a(i) * b(i) }
    }
  }
}
def softened(Tree t) -> (h) {
  match t {
    leaf(x) { h = softmax(x) }
    node(l, r) { a = softened(l)  b = softened(r)  s(i) = a(i) + 2 * b(i)  h = softmax(s) }
  }
}
def grid(Cell t, float(D,H) W, float(H,H) U) -> (h) {
  match t {
    none { h(j) = 0 * U(0,j) }
    cell(x, up, left) {
      a = grid(up, W, U)
      b = grid(left, W, U)
      p(j) +=! W(d,j) * x(d)
      q(j) +=! U(k,j) * (a(k) - 0.5 * b(k))
      h(j) = tanh(p(j) + q(j))
    }
  }
}
def weighted(Tree t, float w) -> (s) {
  match t {
    leaf(x) { s +=! w * x(d) }
    node(l, r) { v = 0.5 * w  a = weighted(l, v)  b = weighted(r, w)  s = a - 2 * b }
  }
}
def leftmost(Tree t) -> (n) {
  match t { leaf(_) { n = 1 } node(l, r) { a = leftmost(l)  b = nodes(r)  n = 2 * a + b } }
}
def attention(Bush t) -> (s, z) {
  match t {
    bush(x, children) {
      a, b = attention(children)
      w = softmax(a)
      p +=! x(d)
      q +=! w(k) * a(k)
      s = p + q
      z max=! b(k)
      z max= p
    }
  }
}
def product(Tree t, float(D,D) M) -> (p) {
  match t {
    leaf(x) { p(i,j) = x(i) * M(i,j) }
    node(l, r) {
      a = product(l, M)
      b = product(r, M)
      q(i,j) +=! a(i,k) * b(k,j)
      p(i,j) = q(i,j) * 0.25 + M(j,i)
    }
  }
}
"""
    + TREE_LSTM
)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def tanh_gates(g: Any) -> Any:
    """c and h of gates i, o, u."""
    c = sigmoid(g[0]) * np.tanh(g[2])
    return sigmoid(g[1]) * np.tanh(c), c


# ---- the recursions ------------------------------------------------------------------------------


def total(t: Any) -> Any:
    return 0.0 if t[0] == "nil" else t[1] + total(t[2])


def doubles(t: Any) -> Any:
    return 1.0 if t[0] == "nil" else t[1] * doubles(t[2])


def ints(t: Any) -> Any:
    return 7 if t[0] == "nil" else 3 * t[1] - ints(t[2])


def rows(t: Any) -> Any:
    if t[0] == "nil":
        return 0.0, 0
    s, n = rows(t[2])
    return t[1].sum() + s, n + 1


def length(t: Any) -> Any:
    return 0 if t[0] == "nil" else 1 + length(t[2])


def child_sum(t: Any, W: Any, U: Any) -> Any:
    inner = [child_sum(child, W, U) for child in t[2]]
    hk = np.array([h for h, _ in inner]).reshape(len(inner), U.shape[1])
    ck = np.array([c for _, c in inner]).reshape(len(inner), U.shape[1])
    p = np.einsum("qdj,d->qj", W, t[1])
    g = p + np.einsum("qmj,m->qj", U, hk.sum(0))
    f = sigmoid(p[3] + np.einsum("mj,km->kj", U[3], hk))
    c = sigmoid(g[0]) * np.tanh(g[2]) + (f * ck).sum(0)
    return sigmoid(g[1]) * np.tanh(c), c


def widest(t: Any) -> Any:
    inner = [widest(child) for child in t[2]]
    return max([n for n, _ in inner] + [len(inner)]), sum(m for _, m in inner) + 1


def roses(t: Any) -> Any:
    if t[0] == "petal":
        return 0.5 * t[1]
    r = sum(roses(part) * (k + 1) for k, part in enumerate(t[2]))
    return t[1] * r - roses(t[3])


def value(t: Any) -> Any:
    if t[0] == "number":
        return t[1]
    if t[0] == "neg":
        return -value(t[1])
    a, b = value(t[1]), value(t[2])
    return a + b if t[0] == "add" else a * b


def dots(a: Any, b: Any) -> Any:
    if "nil" in (a[0], b[0]):
        return 0.0
    return dots(a[2], b[2]) + a[1] * b[1]


def same(s: Any, t: Any) -> Any:
    if s[0] != t[0]:
        return 0
    return 1 if s[0] == "leaf" else same(s[1], t[1]) * same(s[2], t[2])


def even(t: Any) -> Any:
    return 1.0 - length(t) % 2


def evens(t: Any) -> Any:
    if t[0] == "end":
        return 0.0
    _, x, (_, y, rest) = t
    return x + y * evens(rest)


def pairs(t: Any) -> Any:
    if t[0] == "nil" or t[2][0] == "nil":
        return 0.0
    return pairs(t[2][2]) + t[1] * t[2][1]


def spine(t: Any) -> Any:
    if t[0] == "leaf":
        return (t[1] * t[1]).sum()
    left, right = t[1:]
    if left[0] == "node" and right[0] == "node" and right[1][0] == "leaf":
        return spine(left[1]) * spine(left[2]) - spine(right[2]) + right[1][1].sum()
    if left[0] == "leaf":
        return 0.5 * spine(right) + left[1].sum()
    if right[0] == "leaf":
        return 3.0
    return spine(left) + 2 * spine(right)


def sum_tree(t: Any) -> Any:
    return t[1].sum() if t[0] == "leaf" else sum_tree(t[1]) + sum_tree(t[2])


def nodes(t: Any) -> Any:
    return 1 if t[0] == "leaf" else nodes(t[1]) + nodes(t[2]) + 1


def deep(t: Any) -> Any:
    return 0 if t[0] == "leaf" else max(deep(t[1]), deep(t[2])) + 1


def classify(t: Any, V: Any) -> Any:
    return V * sum_tree(t), sum_tree(t) / nodes(t)


def running(t: Any) -> Any:
    if t[0] == "leaf":
        return np.cumsum(t[1])
    a, b = running(t[1]), running(t[2])
    h, last = np.zeros(len(a)), 0.0
    for i in range(len(a)):
        last = h[i] = 0.5 * last + a[i] * b[i]
    return h


def softened(t: Any) -> Any:
    x = t[1] if t[0] == "leaf" else softened(t[1]) + 2 * softened(t[2])
    e = np.exp(x - x.max(initial=-np.inf))
    return e / e.sum()


def tree_lstm(t: Any, W: Any, U: Any, b: Any) -> Any:
    if t[0] == "leaf":
        return tanh_gates(np.einsum("qdj,d->qj", W, t[1]) + b[:3])
    (hl, cl), (hr, cr) = tree_lstm(t[1], W, U, b), tree_lstm(t[2], W, U, b)
    g = np.einsum("qkj,k->qj", U[:, 0], hl) + np.einsum("qkj,k->qj", U[:, 1], hr) + b
    c = sigmoid(g[0]) * np.tanh(g[2]) + sigmoid(g[3]) * cl + sigmoid(g[4]) * cr
    return sigmoid(g[1]) * np.tanh(c), c


def grid(t: Any, W: Any, U: Any) -> Any:
    if t[0] == "none":
        return np.zeros(U.shape[1])
    return np.tanh(t[1] @ W + (grid(t[2], W, U) - 0.5 * grid(t[3], W, U)) @ U)


def product(t: Any, M: Any) -> Any:
    if t[0] == "leaf":
        return t[1][:, None] * M
    return product(t[1], M) @ product(t[2], M) * 0.25 + M.T


def weighted(t: Any, w: Any) -> Any:
    if t[0] == "leaf":
        return (w * t[1]).sum()
    return weighted(t[1], 0.5 * w) - 2 * weighted(t[2], w)


def leftmost(t: Any) -> Any:
    return 1 if t[0] == "leaf" else 2 * leftmost(t[1]) + nodes(t[2])


def attention(t: Any) -> Any:
    inner = [attention(child) for child in t[2]]
    a = np.array([s for s, _ in inner])
    e = np.exp(a - a.max(initial=-np.inf))
    return t[1].sum() + (e * a).sum() / max(e.sum(), 1), max([z for _, z in inner] + [t[1].sum()])


# ---- random structures ---------------------------------------------------------------------------


def vector(random: Random, *shape: int) -> Any:
    count = int(np.prod(shape))
    made = np.array([random.uniform(-1, 1) for _ in range(count)], np.float32)
    return made.reshape(shape)


def tree(random: Random, d: int, depth: int = 5, shared: float = 0.1) -> Any:
    if depth == 0 or random.random() < 0.3:
        return ("leaf", vector(random, d))
    left = tree(random, d, depth - 1, shared)
    is_shared = random.random() < shared
    return ("node", left, left if is_shared else tree(random, d, depth - 1, shared))


def copied(random: Random, d: int) -> Any:
    """A tree in which each node occurs once: calls with values of their own visit all paths."""
    return tree(random, d, shared=0)


def chain(item: Callable[[Random, int], Any]) -> Callable[[Random, int], Any]:
    def made(random: Random, d: int) -> Any:
        found: Any = ("nil",)
        for _ in range(random.randrange(8)):
            found = ("cons", item(random, d), found)
        return found

    return made


def bush(random: Random, d: int, depth: int = 3) -> Any:
    count = random.randrange(5) if depth else 0
    return ("bush", vector(random, d), [bush(random, d, depth - 1) for _ in range(count)])


def rose(random: Random, d: int, depth: int = 3) -> Any:
    if depth == 0 or random.random() < 0.3:
        return ("petal", random.randrange(-5, 6))
    parts = [rose(random, d, depth - 1) for _ in range(random.randrange(4))]
    y, first = random.uniform(-1, 1), rose(random, d, depth - 1)
    return ("stem", float(np.float32(y)), parts, parts[-1] if parts and y < 0 else first)


def expr(random: Random, d: int, depth: int = 4) -> Any:
    if depth == 0 or random.random() < 0.2:
        return ("number", float(random.randrange(-3, 4)))
    name = random.choice(["add", "mul", "neg"])
    parts = [expr(random, d, depth - 1) for _ in range(1 if name == "neg" else 2)]
    return (name, *parts)


def parity(random: Random, d: int) -> Any:
    found: Any = ("end",)
    for _ in range(random.randrange(5)):
        rest = ("more", random.randrange(-3, 4), found)
        found = ("more", float(random.randrange(-3, 4)), rest)
    return found


def cells(random: Random, d: int) -> Any:
    """The last cell of a grid; cells are parts of those below and to the right."""
    none = ("none",)
    across = random.randrange(1, 5)
    above: list[Any] = [none] * across
    last: Any = none
    for _ in range(random.randrange(4)):
        last = none
        for column in range(across):
            last = above[column] = ("cell", vector(random, d), above[column], last)
    return last


def number(random: Random, d: int) -> float:
    return float(random.randrange(-8, 9)) / 8


@dataclass(frozen=True)
class Meaning:
    """A definition: its recursion in Python, its structures, the shapes of its tensors.

    Sizes are D, H, C. `within` is the largest difference, relative to the largest number.
    """

    recursion: Callable[..., Any]
    structures: dict[str, Callable[[Random, int], Any]]
    tensors: dict[str, str] | None = None
    within: float = 2e-5
    smallest: int = 0  # of D


def integer(random: Random, d: int) -> int:
    return random.randrange(-5, 6)


T, L = {"t": tree}, {"l": chain(number)}
MEANINGS = {
    "total": Meaning(total, L),
    "halves": Meaning(total, L, within=2e-3),
    "doubles": Meaning(doubles, L, within=1e-13),
    "ints": Meaning(ints, {"l": chain(integer)}, within=0),
    "rows": Meaning(rows, {"l": chain(lambda random, d: vector(random, 2, d))}),
    "length": Meaning(length, L, within=0),
    "child_sum": Meaning(child_sum, {"t": bush}, {"W": "4DH", "U": "4HH"}),
    "widest": Meaning(widest, {"t": bush}, within=0),
    "roses": Meaning(roses, {"t": rose}),
    "value": Meaning(value, {"e": expr}),
    "dots": Meaning(dots, {"a": chain(number), "b": chain(number)}),
    "same": Meaning(same, {"s": tree, "t": tree}, within=0),
    "even": Meaning(even, L, within=0),
    "evens": Meaning(evens, {"t": parity}),
    "pairs": Meaning(pairs, L),
    "spine": Meaning(spine, T),
    "sum_tree": Meaning(sum_tree, T),
    "nodes": Meaning(nodes, T, within=0),
    "deep": Meaning(deep, T, within=0),
    "classify": Meaning(classify, T, {"V": "C"}),
    "running": Meaning(running, T),
    "softened": Meaning(softened, T),
    "tree_lstm": Meaning(tree_lstm, T, {"W": "3DH", "U": "52HH", "b": "5H"}),
    "grid": Meaning(grid, {"t": cells}, {"W": "DH", "U": "HH"}),
    "weighted": Meaning(weighted, {"t": copied}, {"w": ""}),
    "leftmost": Meaning(leftmost, T, within=0),
    "attention": Meaning(attention, {"t": bush}),
    "product": Meaning(product, T, {"M": "DD"}),
}

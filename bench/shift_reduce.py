"""A shift-reduce network whose decisions come from its state, as SPINN: `bench.structures spinn`.

A tracking LSTM reads the next word and the top of the stack, and decides whether to shift the word
or to reduce the two upper elements to one, by a Tree-LSTM. In the language it is recursion over one
sentence: a shift is a call, a reduction its return. In torch it is the usual program: lists as
stacks, one matrix product for all sentences that do the same.

Bowman et al., A Fast Unified Model for Parsing and Sentence Understanding, ACL 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import anydim as ad
from anydim.compiler.frontends.builder import Builder
from bench.structure_peers import Engines, torch_with

TEXT = """
def spinn(
  float(B,T,E) x, int64(B) length, float(2,E,D) A, float(4,3,D,K) G, float(4,K,K) F, float(4,K) f,
  float(2,K) P, float(5,2,D,D) U, float(5,K,D) Q, float(5,D) u
) -> (h) {
  p(b,t,s,j) +=! A(s,e,j) * x(b,t,e)
  z(j) = 0.0 where j in 0:D
  t(k) = 0.0 where k in 0:K
  h(b), c(b), n(b), a(b), m(b) =
    parse(p(b), length(b), 0, 0, z, z, z, z, t, t, G, F, f, P, U, Q, u)
}

def parse(
  float(T,2,D) p, int64 length, int64 at, int64 open, float(D) lh, float(D) lc, float(D) rh,
  float(D) rc, float(K) s, float(K) r, float(4,3,D,K) G, float(4,K,K) F, float(4,K) f, float(2,K) P,
  float(5,2,D,D) U, float(5,K,D) Q, float(5,D) u; size depth = 64
) -> (h, c, n, a, m) {
  w(i,j) = i == 0 ? (at < length ? (p(at,0,j) else 0) : 0) : (i == 1 ? rh(j) : lh(j)) where i in 0:3
  g(q,k) +=! G(q,i,j,k) * w(i,j)
  e(q,k) +=! F(q,i,k) * s(i)
  y(q,k) = g(q,k) + e(q,k) + f(q,k)
  m1(k) = sigmoid(y(0,k)) * tanh(y(3,k)) + sigmoid(y(1,k)) * r(k)
  a1(k) = sigmoid(y(2,k)) * tanh(m1(k))
  o(d) +=! P(d,k) * a1(k)
  if at < length && (open < 2 || o(0) > o(1)) {
    wh(j) = p(at,0,j)
    wc(j) = p(at,1,j)
    h2, c2, n2, a2, m2 =
      parse(p, length, at + 1, open + 1, rh, rc, wh, wc, a1, m1, G, F, f, P, U, Q, u)
    h, c, n, a, m = parse(p, length, n2, open, lh, lc, h2, c2, a2, m2, G, F, f, P, U, Q, u)
  } else {
    n = at
    a(k) = a1(k)
    m(k) = m1(k)
    if open < 2 {
      h(j) = rh(j)
      c(j) = rc(j)
    } else {
      v(i,j) = i == 0 ? lh(j) : rh(j) where i in 0:2
      l(q,j) +=! U(q,i,k,j) * v(i,k)
      t(q,j) +=! Q(q,k,j) * a1(k)
      d(q,j) = l(q,j) + t(q,j) + u(q,j)
      c(j) = sigmoid(d(0,j)) * tanh(d(4,j)) + sigmoid(d(1,j)) * lc(j) + sigmoid(d(2,j)) * rc(j)
      h(j) = sigmoid(d(3,j)) * tanh(c(j))
    }
  }
}
"""

Array = np.ndarray


@dataclass(frozen=True)
class Sentences:
    """Word vectors of sentences, [rows, longest, embedding], and their lengths."""

    x: Array
    length: Array


def sentences(count: int, embedding: int, seed: int = 0) -> Sentences:
    """Sentences of 5 to 35 words."""
    random = np.random.default_rng(seed)
    length = random.integers(5, 36, size=count)
    shape = count, int(length.max(initial=1)), embedding
    return Sentences(random.standard_normal(shape).astype(np.float32), length)


def weights(embedding: int, hidden: int, tracking: int) -> dict[str, Array]:
    """Random weights, in the order of the parameters."""
    random = np.random.default_rng(1)
    e, d, k = embedding, hidden, tracking

    def drawn(scale: float, *shape: int) -> Array:
        return np.asarray(scale * random.standard_normal(shape), np.float32)

    return {
        "A": drawn(e**-0.5, 2, e, d), "G": drawn(d**-0.5, 4, 3, d, k),
        "F": drawn(k**-0.5, 4, k, k), "f": drawn(k**-0.5, 4, k), "P": drawn(2.0, 2, k),
        "U": drawn(d**-0.5, 5, 2, d, d), "Q": drawn(k**-0.5, 5, k, d), "u": drawn(d**-0.5, 5, d),
    }  # fmt: skip


def compiled(given: Mapping[str, Array], threads: int) -> ad.Model:
    """The network with weights as constants."""
    g = Builder("spinn")
    rows, longest = g.dim("B"), g.dim("T")
    x = g.input("x", ad.float32, (rows, longest, given["A"].shape[1]))
    length = g.input("length", ad.int64, (rows,))
    g.output("h", g.call(ad.define(TEXT).spinn, x, length, *given.values()))
    return ad.compile(g, threads=threads)


def reference(batch: Sentences, given: Mapping[str, Array]) -> Array:
    """The same in float64, sentence by sentence."""
    w = {name: value.astype(np.float64) for name, value in given.items()}
    rows = zip(batch.x.astype(np.float64), batch.length.tolist())
    return np.stack([_parsed(words[:count], w) for words, count in rows])


def _parsed(words: Array, w: Mapping[str, Array]) -> Array:
    p = np.einsum("sej,te->tsj", w["A"], words)
    none, stack, at = np.zeros((2, p.shape[2])), list[Array](), 0
    a = m = np.zeros(w["f"].shape[1])
    while True:
        right, left = (stack[-n] if len(stack) >= n else none for n in (1, 2))
        word = p[at] if at < len(p) else none
        y = np.einsum("qijk,ij->qk", w["G"], np.stack([word[0], right[0], left[0]]))
        y += np.einsum("qik,i->qk", w["F"], a) + w["f"]
        m = _sigmoid(y[0]) * np.tanh(y[3]) + _sigmoid(y[1]) * m
        a = _sigmoid(y[2]) * np.tanh(m)
        o = w["P"] @ a
        if at < len(p) and (len(stack) < 2 or o[0] > o[1]):
            stack.append(p[at])
            at += 1
        elif len(stack) < 2:
            return np.asarray((stack[0] if stack else none)[0])
        else:
            d = np.einsum("qikj,ik->qj", w["U"], np.stack([left[0], right[0]]))
            d += np.einsum("qkj,k->qj", w["Q"], a) + w["u"]
            c = _sigmoid(d[0]) * np.tanh(d[4])
            c += _sigmoid(d[1]) * left[1] + _sigmoid(d[2]) * right[1]
            stack[-2:] = [np.stack([_sigmoid(d[3]) * np.tanh(c), c])]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def engines(given: Mapping[str, Array], threads: int) -> Engines:
    """anydim, and torch if it is installed."""
    model = compiled(given, threads)
    found: Engines = {"anydim": lambda batch: model(x=batch.x, length=batch.length)["h"]}
    torch = torch_with(threads)
    if torch is not None:
        parser = _TorchParser(torch, given)
        found["torch"] = parser
    return found


class _TorchParser:
    """The network in torch: a list of stacks, and products over the sentences that do the same."""

    def __init__(self, torch: Any, given: Mapping[str, Array]) -> None:
        self.torch, self.linear = torch, torch.nn.functional.linear
        t = {name: torch.tensor(value) for name, value in given.items()}
        d, k = given["U"].shape[-1], given["f"].shape[1]
        self.projection = t["A"].permute(0, 2, 1).reshape(2 * d, -1).contiguous()
        self.tracking = t["G"].permute(0, 3, 1, 2).reshape(4 * k, 3 * d).contiguous()
        self.state = t["F"].permute(0, 2, 1).reshape(4 * k, k).contiguous()
        self.bias, self.choice = t["f"].reshape(-1), t["P"]
        self.reduction = t["U"].permute(0, 3, 1, 2).reshape(5 * d, 2 * d).contiguous()
        self.tracked = t["Q"].permute(0, 2, 1).reshape(5 * d, k).contiguous()
        self.reduction_bias = t["u"].reshape(-1)
        self.none = torch.zeros(1, 2, d)

    def __call__(self, batch: Sentences) -> Array:
        torch = self.torch
        with torch.no_grad():
            x = torch.from_numpy(batch.x)
            p = self.linear(x, self.projection).view(*x.shape[:2], 2, -1)
            lengths = batch.length.tolist()
            self.words = [list(p[b, :n].flip(0).split(1)) for b, n in enumerate(lengths)]
            self.stacks = [[self.none, self.none] for _ in lengths]
            active = list(range(len(lengths)))
            a = m = x.new_zeros(len(lengths), self.choice.shape[1])
            while active:
                kept, a, m = self.step(active, a, m)
                if len(kept) < len(active):
                    active, a, m = [active[n] for n in kept], a[kept], m[kept]
            return np.asarray(torch.cat([stack[-1] for stack in self.stacks])[:, 0])

    def step(self, active: list[int], a: Any, m: Any) -> tuple[list[int], Any, Any]:
        """A step of the active sentences; returns the positions of those that go on."""
        torch, words, stacks = self.torch, self.words, self.stacks
        word = torch.cat([words[b][-1] if words[b] else self.none for b in active])
        right = torch.cat([stacks[b][-1] for b in active])
        left = torch.cat([stacks[b][-2] for b in active])
        seen = torch.cat([word[:, 0], right[:, 0], left[:, 0]], 1)
        y = self.linear(seen, self.tracking, self.bias) + self.linear(a, self.state)
        i, f, o, c = y.chunk(4, 1)
        m = torch.sigmoid(i) * torch.tanh(c) + torch.sigmoid(f) * m
        a = torch.sigmoid(o) * torch.tanh(m)
        choice = self.linear(a, self.choice)
        shifts = (choice[:, 0] > choice[:, 1]).tolist()
        reduced, kept = [], []
        for n, b in enumerate(active):
            if words[b] and (len(stacks[b]) < 4 or shifts[n]):
                stacks[b].append(words[b].pop())
            elif len(stacks[b]) >= 4:
                reduced.append(n)
            else:
                continue
            kept.append(n)
        if reduced:
            made = self.reduce(left[reduced], right[reduced], a[reduced])
            for n, element in zip(reduced, made):
                stacks[active[n]][-2:] = [element]
        return kept, a, m

    def reduce(self, left: Any, right: Any, a: Any) -> Any:
        torch = self.torch
        pair = torch.cat([left[:, 0], right[:, 0]], 1)
        y = self.linear(pair, self.reduction, self.reduction_bias) + self.linear(a, self.tracked)
        i, f, g, o, c = y.chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(c)
        c = c + torch.sigmoid(f) * left[:, 1] + torch.sigmoid(g) * right[:, 1]
        return torch.stack([torch.sigmoid(o) * torch.tanh(c), c], 1).split(1)

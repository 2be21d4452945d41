"""The networks of `bench.structures` in the language, compiled with weights as constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import anydim as ad
from anydim.compiler.frontends.builder import Builder

TREE_LSTM = """
def tree_lstm(Tree t, float(3,D,H) W, float(5,2,H,H) U, float(5,H) b) -> (h, c) {
  match t {
    leaf(x) {
      g(q,j) +=! W(q,d,j) * x(d)
      c(j) = sigmoid(g(0,j) + b(0,j)) * tanh(g(2,j) + b(2,j))
      h(j) = sigmoid(g(1,j) + b(1,j)) * tanh(c(j))
    }
    node(left, right) {
      hl, cl = tree_lstm(left, W, U, b)
      hr, cr = tree_lstm(right, W, U, b)
      x(s,k) = s == 0 ? hl(k) : hr(k) where s in 0:2
      p(q,j) +=! U(q,s,k,j) * x(s,k)
      g(q,j) = p(q,j) + b(q,j)
      c(j) = sigmoid(g(0,j)) * tanh(g(2,j)) + sigmoid(g(3,j)) * cl(j) + sigmoid(g(4,j)) * cr(j)
      h(j) = sigmoid(g(1,j)) * tanh(c(j))
    }
  }
}
"""

TEXT = (
    TREE_LSTM
    + """
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
type Deep { leaf(float(D) x, float(D,D) m); node(Deep left, Deep right) }
type Cell { none; cell(float(D) x, Cell up, Cell left) }
type Bush { bush(float(D) x, Bush(K) children) }

def matrix_vector(Deep t, float(2,D,D) W, float(2,D,D) M) -> (p, q) {
  match t {
    leaf(x, m) { p(i) = x(i)  q(i,j) = m(i,j) }
    node(left, right) {
      a, A = matrix_vector(left, W, M)
      b, B = matrix_vector(right, W, M)
      u(i) +=! B(i,j) * a(j)
      v(i) +=! A(i,j) * b(j)
      s(i) +=! W(0,i,j) * u(j)
      t2(i) +=! W(1,i,j) * v(j)
      p(i) = tanh(s(i) + t2(i))
      y(i,j) +=! M(0,i,k) * A(k,j)
      z(i,j) +=! M(1,i,k) * B(k,j)
      q(i,j) = y(i,j) + z(i,j)
    }
  }
}

def grid(Cell t, float(D,H) W, float(H,H) U, float(H,H) V) -> (h) {
  match t {
    none { h(j) = 0 * U(0,j) }
    cell(x, up, left) {
      a = grid(up, W, U, V)
      b = grid(left, W, U, V)
      p(j) +=! W(d,j) * x(d)
      q(j) +=! U(k,j) * a(k)
      r(j) +=! V(k,j) * b(k)
      h(j) = tanh(p(j) + q(j) + r(j))
    }
  }
}

def child_sums(Bush t, float(D,H) W, float(H,H) U) -> (h) {
  match t {
    bush(x, children) {
      k = child_sums(children, W, U)
      s(j) +=! k(n,j)
      p(j) +=! W(d,j) * x(d)
      q(j) +=! U(m,j) * s(m)
      h(j) = tanh(p(j) + q(j))
    }
  }
}
"""
)


def compiled(
    name: str, weights: Mapping[str, np.ndarray], sizes: Mapping[str, int], threads: int
) -> ad.Model:
    """A definition with its weights as constants, at these sizes."""
    definition = getattr(ad.define(TEXT), name)
    g = Builder(name)
    tree: Any = g.structure("t", definition, "", **sizes)
    results = g.call(definition, tree, *weights.values())
    for result, value in zip(definition.definition.results, np.atleast_1d(results)):
        g.output(result, value)
    return ad.compile(g.graph(), threads=threads)

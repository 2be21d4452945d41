"""Groups that the row templates take, each with the same computation in numpy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from anydim.base.dtypes import DType, boolean, float32, float64, int32, int64, uint8
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size

BOX = Box.of(*(Dim(name, 0, 5000) for name in ("B", "S", "R", "C", "V")))
LETTERS = {
    float32: "float", float64: "double", int64: "int64", int32: "int32", uint8: "uint8",
    boolean: "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A definition, the shapes of its inputs in the dims of BOX (or numbers), and its meaning.

    `T` in the text stands for the element type under test; `inputs` gives other types.
    """

    name: str
    text: str
    shapes: tuple[str, ...]
    meaning: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    template: str = "rows"
    inputs: Mapping[int, DType] = field(default_factory=dict)
    low: float = -3.0
    high: float = 3.0

    def group(self, dtype: DType = float32) -> Group:
        """The group for an element type."""
        return _group(self.name, self.text, self.shapes, tuple(self.inputs.items()), dtype)

    def arrays(self, dtype: DType, env: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
        """Inputs of sizes `env`."""
        random = np.random.default_rng(seed)
        made = []
        for place, shape in enumerate(self.shapes):
            sizes = [env[s] if s in env else int(s) for s in shape.split()]
            kind = self.inputs.get(place, dtype)
            made.append(_random(random, kind, sizes, self.low, self.high))
        return made

    def expected(self, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """What the outputs should be, computed in float64 where inputs are floats."""
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # means over nothing
            result = self.meaning(*wide)
        return result if isinstance(result, tuple) else (result,)


@cache
def _group(
    name: str, text: str, shapes: tuple[str, ...], inputs: tuple[tuple[int, DType], ...],
    dtype: DType,
) -> Group:  # fmt: skip
    definition = parse_definition(text.replace("T(", f"{LETTERS[dtype]}("), name)
    kinds = dict(inputs)
    types = [
        TensorType(kinds.get(place, dtype), tuple(as_size(s) for s in shape.split()))
        for place, shape in enumerate(shapes)
    ]
    return instantiate(definition, types, box=BOX)


def _random(
    random: np.random.Generator, kind: DType, sizes: list[int], low: float, high: float
) -> np.ndarray:  # fmt: skip
    if kind == boolean:
        return random.random(sizes) < 0.5
    if kind.is_integer:
        return random.integers(int(low), int(high) + 1, sizes).astype(kind.numpy)
    return random.uniform(low, high, sizes).astype(kind.numpy)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray, axis: object = -1) -> np.ndarray:
    mean = x.mean(axis, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis, keepdims=True) + 1e-5) * g + b


erf = np.vectorize(math.erf, otypes=[np.float64])

CASES = (
    Case(
        "softmax",
        """def softmax(T(R,C) x) -> (y) {
          top(r) max=! x(r,c)
          e(r,c) = exp(x(r,c) - top(r))
          total(r) +=! e(r,c)
          y(r,c) = e(r,c) / total(r)
        }""",
        ("R C",),
        softmax,
    ),
    Case(
        "softmax with its parts kept",
        """def softmax(T(R,C) x) -> (y, e, total) {
          top(r) max=! x(r,c)
          e(r,c) = exp(x(r,c) - top(r))
          total(r) +=! e(r,c)
          y(r,c) = e(r,c) / total(r)
        }""",
        ("R C",),
        lambda x: (
            softmax(x),
            np.exp(x - x.max(-1, keepdims=True, initial=-np.inf)),
            np.exp(x - x.max(-1, keepdims=True, initial=-np.inf)).sum(-1),
        ),
    ),
    Case(
        "softmax across",
        """def softmax(T(R,V,C) x) -> (y) {
          top(r,c) max=! x(r,v,c)
          e(r,v,c) = exp(x(r,v,c) - top(r,c))
          total(r,c) +=! e(r,v,c)
          y(r,v,c) = e(r,v,c) / total(r,c)
        }""",
        ("R V C",),
        lambda x: softmax(x, 1),
    ),
    Case(
        "log softmax",
        """def log_softmax(T(B,S,C) x) -> (y) {
          top(b,s) max=! x(b,s,c)
          total(b,s) +=! exp(x(b,s,c) - top(b,s))
          y(b,s,c) = x(b,s,c) - top(b,s) - log(total(b,s))
        }""",
        ("B S C",),
        lambda x: np.log(softmax(x)),
    ),
    Case(
        "layer norm",
        """def layer_norm(T(R,C) x, T(C) g, T(C) b) -> (y) {
          mean(r) +=! x(r,c) / C
          variance(r) +=! (x(r,c) - mean(r)) * (x(r,c) - mean(r)) / C
          y(r,c) = (x(r,c) - mean(r)) * rsqrt(variance(r) + 1e-5) * g(c) + b(c)
        }""",
        ("R C", "C", "C"),
        layer_norm,
    ),
    Case(
        "residual, bias, layer norm, both kept",
        """def norm(T(B,S,C) x, T(B,S,C) r, T(C) bias, T(C) g, T(C) b) -> (t, y) {
          t(i,j,c) = x(i,j,c) + r(i,j,c) + bias(c)
          mean(i,j) +=! t(i,j,c)
          variance(i,j) +=! (t(i,j,c) - mean(i,j) / C) * (t(i,j,c) - mean(i,j) / C)
          scale(i,j) = 1.0 / sqrt(variance(i,j) / C + 1e-5)
          y(i,j,c) = (t(i,j,c) - mean(i,j) / C) * scale(i,j) * g(c) + b(c)
        }""",
        ("B S C", "B S C", "C", "C", "C"),
        lambda x, r, bias, g, b: (x + r + bias, layer_norm(x + r + bias, g, b)),
    ),
    Case(
        "residual, bias, layer norm",
        """def norm(T(R,C) x, T(R,C) r, T(C) bias, T(C) g, T(C) b) -> (y) {
          t(i,c) = x(i,c) + r(i,c) + bias(c)
          mean(i) +=! t(i,c) / C
          variance(i) +=! (t(i,c) - mean(i)) * (t(i,c) - mean(i)) / C
          y(i,c) = (t(i,c) - mean(i)) / sqrt(variance(i) + 1e-5) * g(c) + b(c)
        }""",
        ("R C", "R C", "C", "C", "C"),
        lambda x, r, bias, g, b: layer_norm(x + r + bias, g, b),
    ),
    Case(
        "kept in scratch",
        """def kept(T(R,C) x) -> (big) {
          total(r) +=! exp(x(r,c))
          e(r,c) = exp(x(r,c)) * 2.0
          share(r) +=! e(r,c) / total(r)
          f(r,c) = e(r,c) / total(r) * C
          most(r) max=! f(r,c) + share(r)
          big(r,c) = f(r,c) > most(r) - 3.0
        }""",
        ("R C",),
        lambda x: (
            2 * softmax(x) * x.shape[-1]
            > (2 * softmax(x) * x.shape[-1]).max(-1, keepdims=True, initial=-np.inf) - 1.0
        ),
        high=1.0,
        low=0.9,
    ),
    Case(
        "unit length",
        """def unit(T(R,C) x) -> (y) {
          squares(r) +=! x(r,c) * x(r,c)
          y(r,c) = x(r,c) / max(sqrt(squares(r)), 1e-12)
        }""",
        ("R C",),
        lambda x: x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12),
    ),
    Case(
        "norm over two axes",
        """def norm(T(R,S,C) x, T(S,C) g) -> (y) {
          mean(r) +=! x(r,s,c) / (S * C)
          y(r,s,c) = (x(r,s,c) - mean(r)) * g(s,c)
        }""",
        ("R S C", "S C"),
        lambda x, g: (x - x.mean((1, 2), keepdims=True)) * g,
    ),
    Case(
        "rows of two loops",
        """def total(T(R,S,C) x, T(S) w) -> (y) { y(r) +=! x(r,s,c) * w(s) }""",
        ("R S C", "S"),
        lambda x, w: (x * w[:, None]).sum((1, 2)),
    ),
    Case(
        "sum of all",
        "def total(T(R,C) x) -> (y) { y() +=! x(r,c) }",
        ("R C",),
        lambda x: x.sum(),
    ),
    Case(
        "column means",
        "def mean(T(R,C) x) -> (y) { y(c) +=! x(r,c) / R }",
        ("R C",),
        lambda x: x.sum(0) / max(1, x.shape[0]),
    ),
    Case(
        "masked mean",
        """def pool(T(B,S,C) x, int64(B,S) keep) -> (y) {
          total(b,c) +=! x(b,s,c) * keep(b,s)
          count(b,c) +=! float(keep(b,s)) where c in 0:C
          y(b,c) = total(b,c) / max(count(b,c), 1.0)
        }""",
        ("B S C", "B S"),
        lambda x, m: (x * m[..., None]).sum(1) / np.maximum(m.sum(1)[:, None], 1),
        inputs={1: int64},
        low=0.0,
        high=1.0,
    ),
    Case(
        "any",
        "def some(bool(R,C) x) -> (y, z) { y(r) max=! x(r,c)\n z(r) min=! x(r,c) }",
        ("R C",),
        lambda x: (x.any(-1), x.all(-1)),
        inputs={0: boolean},
    ),
    Case(
        "sum over windows",
        "def windows(T(R,C) x, T(3) w) -> (y) { y(r,c) +=! x(r,c+k) * w(k) }",
        ("R C", "3"),
        lambda x, w: sum(
            x[:, k : k + max(0, x.shape[1] - 2)][:, : max(0, x.shape[1] - 2)] * w[k]
            for k in range(3)
        ),
    ),
    Case(
        "matrix product",
        "def matmul(T(R,V) a, T(V,C) b) -> (y) { y(r,c) +=! a(r,v) * b(v,c) }",
        ("R V", "V C"),
        lambda a, b: a @ b,
    ),
    Case(
        "scaled matrix product",
        "def scaled(T(R,V) a, T(V,C) b, T(R) s) -> (y) { y(r,c) +=! a(r,v) * b(v,c) * s(r) }",
        ("R V", "V C", "R"),
        lambda a, b, s: a @ b * s[:, None],
    ),
    Case(
        "gelu",
        """def gelu(T(B,S,C) x) -> (y) {
          y(b,s,c) = 0.5 * x(b,s,c) * (1.0 + erf(x(b,s,c) * 0.7071067811865476))
        }""",
        ("B S C",),
        lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
        template="pointwise",
    ),
    Case(
        "broadcast",
        """def broadcast(T(B,S,C) x, T(C) bias, T(B,S) w, T(1) one) -> (y) {
          y(b,s,c) = (x(b,s,c) + bias(c)) * w(b,s) + one(0)
        }""",
        ("B S C", "C", "B S", "1"),
        lambda x, bias, w, one: (x + bias) * w[..., None] + one,
        template="pointwise",
    ),
    Case(
        "broadcast over the first axis",
        "def add(T(B,S,C) x, T(S,C) p) -> (y) { y(b,s,c) = x(b,s,c) + p(s,c) }",
        ("B S C", "S C"),
        lambda x, p: x + p,
        template="pointwise",
    ),
    Case(
        "permuted",
        "def permuted(T(B,S,R,C) x) -> (y) { y(b,r,s,c) = x(b,s,r,c) * 2 }",
        ("B S R C",),
        lambda x: x.transpose(0, 2, 1, 3) * 2,
        template="pointwise",
    ),
    Case(
        "transposed",
        "def transposed(T(R,C) x) -> (y) { y(c,r) = x(r,c) }",
        ("R C",),
        lambda x: x.T,
        template="pointwise",
    ),
    Case(
        "lower triangle",
        "def lower(T(R,C) x) -> (y) { y(r,c) = c <= r ? x(r,c) : 0 }",
        ("R C",),
        lambda x: np.tril(x),
        template="pointwise",
    ),
    Case(
        "padded",
        """def padded(T(R,C) x) -> (y) {
          y(r,c) = x(r-1, c-2) else 7 where r in 0:R+2, c in 0:C+3
        }""",
        ("R C",),
        lambda x: np.pad(x, ((1, 1), (2, 1)), constant_values=7),
        template="pointwise",
    ),
    Case(
        "every second, backwards",
        "def second(T(R,N) x) -> (y) { y(r,c) = x(R-1-r, 2*c+1) where r in 0:R, c in 0:N//2 }",
        ("R C",),
        lambda x: x[::-1, 1 : x.shape[1] // 2 * 2 : 2],
        template="pointwise",
    ),
    Case(
        "looked up",
        """def lookup(T(V,C) table, int64(B,S) at) -> (y) {
          y(b,s,c) = table(at(b,s) < 0 ? at(b,s) + V : at(b,s), c)
        }""",
        ("V C", "B S"),
        lambda table, at: table[at],
        template="pointwise",
        inputs={1: int64},
        low=-2,
        high=2,
    ),
    Case(
        "one number",
        "def scalar(T x) -> (y) { y() = x() * 2 }",
        ("",),
        lambda x: x * 2,
        template="pointwise",
    ),
    Case(
        "compared",
        "def compared(T(R,C) x, T(R,C) y) -> (z) { z(r,c) = x(r,c) < y(r,c) && x(r,c) > 0 }",
        ("R C", "R C"),
        lambda x, y: (x < y) & (x > 0),
        template="pointwise",
    ),
    Case(
        "repeated",
        "def repeated(T(R,C) x) -> (y) { y(r,c) = x(r, c // 3) where c in 0:3*C }",
        ("R C",),
        lambda x: np.repeat(x, 3, axis=1),
        template="pointwise",
    ),
)
BY_NAME = {case.name: case for case in CASES}

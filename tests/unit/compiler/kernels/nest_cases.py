"""Groups of ordered steps with what numpy, or plain Python, says they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from anydim.base.dtypes import DType, float16, float32, int32, int64
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.bounds_checks import inside
from anydim.sizes import Box, Dim, Size, as_size

T, B, C, K, N, M = (Size.symbol(name) for name in ("T", "B", "C", "K", "N", "M"))
t, s, u = (Size.symbol(name) for name in ("t", "s", "u"))
BOX = Box.of(*(Dim(name) for name in ("T", "B", "C", "K", "N", "M")))
Part = Expr | Size | int | str


def expr(part: Part) -> Expr:
    """A size, a number that is one, the name of an axis, or an expression as it is."""
    if isinstance(part, (Size, int)):
        return SizeTerm(as_size(part))
    return Index(part) if isinstance(part, str) else part


def read(tensor: str, *places: Part, default: Expr | None = None) -> Read:
    return Read(tensor, tuple(map(expr, places)), False, default)


def apply(function: str, *parts: Part) -> Apply:
    return Apply(function, tuple(map(expr, parts)))


def add(*parts: Part) -> Expr:
    total = expr(parts[0])
    for part in parts[1:]:
        total = apply("add", total, part)
    return total


def mul(left: Part, right: Part) -> Expr:
    return apply("mul", left, right)


def number(value: float, dtype: DType = float32) -> Literal:
    return Literal(value, dtype)


def axis(name: str, extent: Size | int) -> Axis:
    return Axis(name, as_size(extent))


def loop(variable: Size, start: Part, stop: Part, *body: OrderedStep, step: int = 1) -> Loop:
    return Loop(str(variable), expr(start), expr(stop), step, body)


def tensor(name: str, *shape: Size | int, dtype: DType = float32) -> Tensor:
    return Tensor(name, TensorType(dtype, tuple(map(as_size, shape))))


def write(
    target: str, place: tuple[Part, ...], axes: tuple[Axis, ...], body: Part, combine: str = "",
    reduced: tuple[Axis, ...] = (), fresh: bool = False,
) -> Write:  # fmt: skip
    return Write(target, tuple(map(expr, place)), axes, expr(body), combine, reduced, fresh)


@dataclass(frozen=True)
class Case:
    """A group, inputs for sizes, and an independent computation of the outputs."""

    name: str
    group: Group
    expected: Callable[..., object]
    parallel: str = ""  # what threads share; empty: nothing
    integers: dict[str, str] = field(default_factory=dict)  # an input -> 0:size it is drawn from
    tolerance: float = 1e-5
    scale: float = 1.0  # of the inputs; a recurrence with large weights magnifies its rounding

    def arrays(self, env: dict[str, int]) -> list[np.ndarray]:
        rng = np.random.default_rng((len(self.name), *env.values()))
        made = []
        for one in self.group.inputs:
            shape = [size.evaluate(env) for size in one.type.shape]
            if one.type.dtype.is_integer:
                high = eval_size(self.integers.get(one.name, "5"), env)
                made.append(rng.integers(0, max(high, 1), shape).astype(one.type.dtype.numpy))
            else:
                drawn = self.scale * rng.standard_normal(shape)
                made.append(drawn.astype(one.type.dtype.numpy))
        return made

    def results(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        found = self.expected(*wide)
        return [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]


def eval_size(text: str, env: dict[str, int]) -> int:
    return env[text] if text in env else int(text)


# ---- recurrences -------------------------------------------------------------------------------

TC, TBC = (axis("c", C),), (axis("b", B), axis("c", C))

CUMULATIVE = Group(
    inputs=(tensor("x", T, C),),
    outputs=(tensor("y", T, C),),
    statements=(),
    steps=(
        loop(
            t, 0, T,
            Branch(
                apply("equal", t, 0),
                (write("y", (t, "c"), TC, read("x", t, "c")),),
                (write("y", (t, "c"), TC, add(read("y", t - 1, "c"), read("x", t, "c"))),),
            ),
        ),
    ),
)  # fmt: skip

GUARDED = Group(
    inputs=(tensor("x", B, T),),
    outputs=(tensor("y", B, T),),
    statements=(),
    steps=(
        loop(
            t, 0, T,
            write(
                "y", ("b", t), (axis("b", B),),
                apply("max", read("x", "b", t),
                      read("y", "b", t - 1, default=number(float("-inf")))),
            ),
        ),
    ),
)  # fmt: skip

POOLING = Group(
    inputs=(tensor("z", T, B, C), tensor("f", T, B, C), tensor("o", T, B, C)),
    outputs=(tensor("h", T, B, C),),
    statements=(),
    temporaries=(tensor("c", T, B, C),),
    steps=(
        loop(
            t, 0, T,
            write(
                "c", (t, "b", "c"), TBC,
                add(
                    mul(read("f", t, "b", "c"), read("c", t - 1, "b", "c", default=number(0.0))),
                    mul(apply("sub", number(1.0), read("f", t, "b", "c")), read("z", t, "b", "c")),
                ),
            ),
            write("h", (t, "b", "c"), TBC, mul(read("o", t, "b", "c"), read("c", t, "b", "c"))),
        ),
    ),
)  # fmt: skip


def pooling(z: np.ndarray, f: np.ndarray, o: np.ndarray) -> np.ndarray:
    h, c = np.zeros_like(z), np.zeros(z.shape[1:])
    for iteration in range(len(z)):
        c = f[iteration] * c + (1 - f[iteration]) * z[iteration]
        h[iteration] = o[iteration] * c
    return h


BACKWARDS = Group(
    inputs=(tensor("x", T, C),),
    outputs=(tensor("y", T, C),),
    statements=(),
    steps=(
        loop(
            t, T - 1, -1,
            write("y", (t, "c"), TC,
                  add(read("x", t, "c"),
                      mul(number(0.5), read("y", t + 1, "c", default=number(0.0))))),
            step=-1,
        ),
    ),
)  # fmt: skip


def backwards(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for iteration in reversed(range(len(x))):
        y[iteration] = x[iteration] + (0.5 * y[iteration + 1] if iteration + 1 < len(x) else 0)
    return y


EVERY_THIRD = Group(
    inputs=(tensor("x", T, C),),
    outputs=(tensor("y", T, C),),
    statements=(),
    steps=(
        loop(t, 1, T, write("y", (t, "c"), TC, add(read("x", t, "c"), read("x", t - 1, "c"))),
             step=3),
    ),
)  # fmt: skip


def every_third(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    y[1::3] = x[1::3] + x[:-1][::3][: len(y[1::3])]
    return y


STENCIL = Group(
    inputs=(tensor("start", N),),
    outputs=(tensor("y", T + 1, N),),
    statements=(),
    steps=(
        write("y", (0, "i"), (axis("i", N),), read("start", "i")),
        loop(
            t, 0, T,
            write(
                "y", (t + 1, "i"), (axis("i", N),),
                add(
                    mul(number(0.5), read("y", t, "i")),
                    mul(number(0.25), read("y", t, apply("sub", "i", 1), default=number(0.0))),
                    mul(number(0.25), read("y", t, apply("add", "i", 1), default=number(0.0))),
                ),
            ),
        ),
    ),
)  # fmt: skip


def stencil(start: np.ndarray, iterations: int) -> np.ndarray:
    rows = [start]
    for _ in range(iterations):
        wide = np.concatenate([[0.0], rows[-1], [0.0]])
        rows.append(0.5 * rows[-1] + 0.25 * wide[:-2] + 0.25 * wide[2:])
    return np.stack(rows)


LEVENSHTEIN = Group(
    inputs=(tensor("a", N, dtype=int32), tensor("b", M, dtype=int32)),
    outputs=(tensor("d", N + 1, M + 1, dtype=int64),),
    statements=(),
    steps=(
        write("d", ("i", 0), (axis("i", N + 1),), "i"),
        write("d", (0, "j"), (axis("j", M + 1),), "j"),
        loop(
            t, 1, N + 1,
            loop(
                s, 1, M + 1,
                write(
                    "d", (t, s), (),
                    apply(
                        "min",
                        apply("min", add(read("d", t - 1, s), 1), add(read("d", t, s - 1), 1)),
                        add(
                            read("d", t - 1, s - 1),
                            apply("select",
                                  apply("equal", read("a", t - 1), read("b", s - 1)),
                                  Literal(0, int64), Literal(1, int64)),
                        ),
                    ),
                ),
            ),
        ),
    ),
)  # fmt: skip


def levenshtein(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    table = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            changed = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, changed)
    return table


ELMAN = Group(
    inputs=(tensor("x", T, B, K), tensor("h0", B, C), tensor("i2h", K, C), tensor("h2h", C, C)),
    outputs=(tensor("h", T, B, C),),
    statements=(),
    steps=(
        loop(
            t, 0, T,
            Branch(
                apply("equal", t, 0),
                (write("h", (t, "b", "c"), TBC, mul(read("h2h", "d", "c"), read("h0", "b", "d")),
                       "add", (axis("d", C),), True),),
                (write("h", (t, "b", "c"), TBC,
                       mul(read("h2h", "d", "c"), read("h", t - 1, "b", "d")),
                       "add", (axis("d", C),), True),),
            ),
            write("h", (t, "b", "c"), TBC, mul(read("i2h", "k", "c"), read("x", t, "b", "k")),
                  "add", (axis("k", K),)),
            write("h", (t, "b", "c"), TBC, apply("tanh", read("h", t, "b", "c"))),
        ),
    ),
)  # fmt: skip


def elman(x: np.ndarray, h: np.ndarray, i2h: np.ndarray, h2h: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(x), *h.shape))
    for iteration in range(len(x)):
        h = rows[iteration] = np.tanh(x[iteration] @ i2h + h @ h2h)
    return rows


# ---- data decides ------------------------------------------------------------------------------

RAGGED = Group(
    inputs=(tensor("x", B, T), tensor("length", B, dtype=int64)),
    outputs=(tensor("y", B, T), tensor("total", B)),
    statements=(),
    steps=(
        loop(
            s, 0, B,
            loop(
                t, 0, read("length", s),
                write("total", (s,), (), read("x", s, inside(SizeTerm(t), T, 0)), "add"),
                write("y", (s, inside(SizeTerm(t), T, 1)), (), read("total", s)),
            ),
        ),
    ),
)  # fmt: skip


def ragged(x: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, total = np.zeros_like(x), np.zeros(len(x))
    for row, count in enumerate(length):
        y[row, :count] = np.cumsum(x[row, :count])
        total[row] = x[row, :count].sum()
    return y, total


HISTOGRAM = Group(
    inputs=(tensor("place", N, dtype=int32), tensor("weight", N)),
    outputs=(tensor("count", K, dtype=int64), tensor("sum", K), tensor("last", K)),
    statements=(),
    steps=(
        write("count", (inside(Cast(int64, read("place", "i")), K, 0),), (axis("i", N),),
              Literal(1, int64), "add"),
        write("sum", (inside(Cast(int64, read("place", "i")), K, 0),), (axis("i", N),),
              read("weight", "i"), "add"),
        write("last", (inside(Cast(int64, read("place", "i")), K, 0),), (axis("i", N),),
              read("weight", "i")),
    ),
)  # fmt: skip


# ---- the order inside one write ----------------------------------------------------------------

SHIFTED = Group(
    inputs=(tensor("x", N),),
    outputs=(tensor("y", N),),
    statements=(),
    steps=(
        write("y", ("i",), (axis("i", N),), read("x", "i")),
        loop(t, 0, 3, write("y", ("i",), (axis("i", N),),
             add(read("y", apply("sub", "i", 1), default=number(0.0)),
                 read("y", apply("add", "i", 1), default=number(0.0))))),
    ),
)  # fmt: skip


def shifted(x: np.ndarray) -> np.ndarray:
    for _ in range(3):
        wide = np.concatenate([[0.0], x, [0.0]])
        x = wide[:-2] + wide[2:]
    return x


OVERWRITTEN = Group(
    inputs=(tensor("x", N, M),),
    outputs=(tensor("last", N), tensor("diagonal", N + M)),
    statements=(),
    steps=(
        write("last", ("i",), (axis("i", N), axis("j", M)), read("x", "i", "j")),
        write("diagonal", (apply("add", "i", "j"),), (axis("i", N), axis("j", M)),
              read("x", "i", "j"), "add"),
    ),
)  # fmt: skip


def overwritten(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n, m = x.shape
    diagonal = np.zeros(n + m)
    for i in range(n):
        diagonal[i : i + m] += x[i]
    return (x[:, -1] if m else np.zeros(n)), diagonal


TRIANGLE = Group(
    inputs=(tensor("x", N, M),),
    outputs=(tensor("y", N, M), tensor("z", N)),
    statements=(),
    temporaries=(tensor("w", t + 1, M),),
    steps=(
        loop(
            t, 0, N,
            Statement("w", (axis("i", t + 1), axis("j", M)),
                      mul(read("x", t, "j"), read("x", "i", "j"))),
            write("y", (t, "j"), (axis("j", M),), read("w", "i", "j"), "add",
                  (axis("i", t + 1),), True),
            write("z", (t,), (), read("x", t // 2, "j"), "max", (axis("j", M),), True),
        ),
    ),
)  # fmt: skip


def triangle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sums = [(x[: row + 1] * x[row]).sum(0) for row in range(len(x))]
    tops = [x[row // 2].max(initial=-np.inf) for row in range(len(x))]
    return np.array(sums).reshape(x.shape), np.array(tops).reshape(len(x))


HALVES = Group(
    inputs=(tensor("x", T, K, dtype=float16),),
    outputs=(tensor("y", T, dtype=float16),),
    statements=(),
    steps=(
        loop(t, 0, T, write("y", (t,), (), apply("abs", read("x", t, "k")), "add",
                            (axis("k", K),), True)),
    ),
)  # fmt: skip

FIBONACCI = Group(
    inputs=(tensor("x", T), tensor("start", 2)),
    outputs=(tensor("y", T + 2), tensor("last")),
    statements=(),
    steps=(
        write("y", ("i",), (axis("i", 2),), read("start", "i")),
        loop(
            t, 2, T + 2,
            write("y", (t,), (),
                  add(mul(number(0.6), read("y", t - 1)), mul(number(0.3), read("y", t - 2)),
                      read("x", t - 2))),
            write("last", (), (), read("y", t)),
        ),
    ),
)  # fmt: skip


def fibonacci(x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, float]:
    y = [*start]
    for value in x:
        y.append(0.6 * y[-1] + 0.3 * y[-2] + value)
    return np.array(y), y[-1] if len(x) else 0.0


PERMUTED = Group(
    inputs=(tensor("x", N, dtype=int64),),
    outputs=(tensor("y", N, dtype=int64),),
    statements=(),
    steps=(
        write("y", ("i",), (axis("i", N),), apply("sub", apply("sub", N, 1), "i")),
        write("y", (inside(read("y", "i"), N, 0),), (axis("i", N),),
              add(read("y", "i"), read("x", "i"))),
    ),
)  # fmt: skip

TC_ALL, KC = (axis("t", T), axis("c", C)), (axis("k", K), axis("c", C))
BTC, BKC = (axis("b", B), *TC_ALL), (axis("b", B), *KC)
ROW = inside(Cast(int64, read("place", "k")), T, 0)

SCATTERED = Group(
    inputs=(tensor("x", T, C), tensor("place", K, dtype=int32), tensor("u", K, C)),
    outputs=(tensor("y", T, C),),
    statements=(),
    steps=(
        write("y", ("t", "c"), TC_ALL, mul(number(2.0), read("x", "t", "c"))),
        write("y", (ROW, "c"), KC, read("u", "k", "c"), "add"),
    ),
)  # fmt: skip

SCATTERED_IN_BATCHES = Group(
    inputs=(tensor("x", B, T, C), tensor("place", K, dtype=int32), tensor("u", B, K, C)),
    outputs=(tensor("y", B, T, C),),
    statements=(),
    steps=(
        write("y", ("b", "t", "c"), BTC, read("x", "b", "t", "c")),
        write("y", ("b", ROW, "c"), BKC, read("u", "b", "k", "c"), "add"),
    ),
)  # fmt: skip


def scattered(x: np.ndarray, place: np.ndarray, u: np.ndarray) -> np.ndarray:
    y = 2 * x
    np.add.at(y, place, u)
    return y


def scattered_in_batches(x: np.ndarray, place: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([scattered(a / 2, place, b) for a, b in zip(x, u)]) if len(x) else x


CASES = (
    Case("cumulative", CUMULATIVE, lambda x: np.cumsum(x, 0), "c"),
    Case("guarded", GUARDED, lambda x: np.maximum.accumulate(x, 1), "b"),
    Case("pooling", POOLING, pooling, "b"),
    Case("backwards", BACKWARDS, backwards, "c"),
    Case("every third", EVERY_THIRD, every_third, "c"),
    Case("levenshtein", LEVENSHTEIN, levenshtein),
    Case("elman", ELMAN, elman, "b", scale=0.15),
    Case("ragged", RAGGED, ragged, "s", {"length": "T"}),
    Case("shifted", SHIFTED, shifted),
    Case("overwritten", OVERWRITTEN, overwritten),
    Case("triangle", TRIANGLE, triangle),
    Case("halves", HALVES, lambda x: np.abs(x).sum(-1), "t", {}, 2e-3),
    Case("fibonacci", FIBONACCI, fibonacci),
    Case("permuted", PERMUTED, lambda x: (x + np.arange(len(x))[::-1])[::-1]),
    Case("scattered", SCATTERED, scattered, "c", {"place": "T"}),
    Case("scattered in batches", SCATTERED_IN_BATCHES, scattered_in_batches, "b", {"place": "T"}),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}

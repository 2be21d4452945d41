"""Rows of overloads that create tensors, random ones included.

In an exported program random numbers do not continue torch's generator: each overload has a seed
of its own, and gives the same numbers at every call. In a graph of torch.compile torch draws them.
"""

from __future__ import annotations

import math
from typing import Any

from anydim.base.dtypes import boolean, float32, float64, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Number, Sizes, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size, as_size, ceil_div, maximum


def full(g: TorchBuilder, shape: Sizes, value: Number | Value, **_: Any) -> Value:
    if isinstance(value, Value):
        return g.expand(g.as_type(value, g.result), shape=tuple(shape))
    return g.fill_shape(shape, value, g.result)


def filled_with(number: int) -> Build:
    def build(g: TorchBuilder, shape: Sizes, *_: Any, **__: Any) -> Value:
        return g.fill_shape(shape, number, g.result)

    return build


def anew(row: Build) -> Build:
    """A row that takes a tensor for its type, which is that of the result."""
    return lambda g, x, *arguments, **named: row(g, *arguments, **named)


def scalar_tensor(g: TorchBuilder, value: Number | Value, **_: Any) -> Value:
    return g.operand(value, g.result)


def arange(
    g: TorchBuilder, start: Number | Value, end: Number | Value, step: Number = 1, **_: Any
) -> Value:
    """Integers exactly; real numbers as start + i * step in float64, rounded once."""
    numbers: Any = (start, end, step)
    if all(isinstance(each, (int, Size)) for each in numbers):
        low, high, stride = map(as_size, numbers)
        if stride.constant:
            whole = g.range(
                start=low, step=stride, count=_count(high - low, stride.constant), dtype=int64
            )
            return g.as_type(whole, g.result)
    if all(isinstance(each, (int, float)) for each in numbers):
        first, last, by = numbers
        return _steps(g, first, by, as_size(max(0, math.ceil((last - first) / by))))
    begin, stop, pace = (g.operand(each, float64) for each in numbers)
    size = g.find_size(g.maximum(g.ceil(g.div(g.sub(stop, begin), pace)), 0.0), "count")
    steps = g.mul(g.positions(size, float64), pace)
    return g.as_type(g.add(steps, begin), g.result)


def _count(span: Size, step: int) -> Size:
    """How many steps fit into a span, its end left out."""
    return maximum(ceil_div(span, step) if step > 0 else ceil_div(-span, -step), 0)


def _steps(g: TorchBuilder, start: float, step: float, count: Size) -> Value:
    if g.result.is_integer:
        return g.as_type(
            g.range(start=int(start), step=int(step), count=count, dtype=int64), g.result
        )
    steps = g.mul(g.positions(count, float64), float(step))
    return g.as_type(g.add(steps, float(start)), g.result)


def prims_iota(
    g: TorchBuilder, length: int | Size, *, start: int | Size, step: int | Size, **_: Any
) -> Value:
    whole = g.range(start=start, step=step, count=length, dtype=int64)
    return g.as_type(whole, g.result)


def linspace(
    g: TorchBuilder, start: Number | Value, end: Number | Value, steps: int | Size, **_: Any
) -> Value:
    """From both ends, as torch does: the second half counts down from the end."""
    first, last = (g.operand(each, float64) for each in (start, end))
    count = as_size(steps)
    spaces = g.scalar(maximum(count - 1, 1), float64)
    by = g.div(g.sub(last, first), spaces)
    i = g.positions(count, float64)
    back = g.sub(g.scalar(count - 1, float64), i)
    low = g.add(first, g.mul(by, i))
    high = g.sub(last, g.mul(by, back))
    half = g.scalar(count // 2, float64)
    made = g.where(g.less(i, half), low, g.where(g.less(spaces, 1.0), low, high))
    made = low if count.constant == 1 else made
    return g.trunc(made) if g.result.is_integer else made


def logspace(
    g: TorchBuilder, start: Number, end: Number, steps: int | Size, base: float = 10.0, **_: Any
) -> Value:
    made = linspace(g, start, end, steps)
    return g.pow(g.scalar(float(base), made.dtype), made)


def eye(g: TorchBuilder, rows: int | Size, columns: int | Size | None = None, **_: Any) -> Value:
    count = rows if columns is None else columns
    return g.as_type(g.eye(rows=rows, columns=count, dtype=int64), g.result)


def triangle_places(upper: bool) -> Build:
    """The coordinates [2, count] of a triangle, row by row."""

    def build(
        g: TorchBuilder, rows: int | Size, columns: int | Size, offset: int = 0, **_: Any
    ) -> Value:
        i = g.unsqueeze(g.positions(rows), axes=(1,))
        away = g.sub(g.positions(columns), i)
        marks = g.greater_equal(away, offset) if upper else g.less_equal(away, offset)
        return g.nonzero(marks)

    return build


# ---- random ------------------------------------------------------------------------------------


def uniform(
    g: TorchBuilder, shape: Sizes, low: float = 0.0, high: float = 1.0, **_: Any
) -> Value:  # fmt: skip
    low, high = float(low), float(high)
    return g.random_uniform(shape=tuple(shape), low=low, high=high, dtype=float32, seed=g.seed())


def like(row: Build) -> Build:
    """A row that takes a tensor for its shape."""
    return lambda g, x, *arguments, **named: row(g, x.shape, *arguments, **named)


def normal(g: TorchBuilder, shape: Sizes, **_: Any) -> Value:
    return g.random_normal(shape=tuple(shape), dtype=float32, seed=g.seed())


def normal_around(
    g: TorchBuilder, mean: Value | float, deviation: Value | float = 1.0, *rest: Any, **_: Any
) -> Value:
    shapes = [each.shape for each in (mean, deviation) if isinstance(each, Value)]
    if isinstance(deviation, Value):
        at_least_0 = g.greater_equal(deviation, 0)
        g.expect(at_least_0, "normal: a standard deviation is below 0, or not a number")
    made = normal(g, shapes[0] if shapes else rest[0])
    return g.add(g.mul(made, g.operand(deviation, made.dtype)), g.operand(mean, made.dtype))


def integers(g: TorchBuilder, low: int, high: int, shape: Sizes, **_: Any) -> Value:
    wide = g.random_uniform(
        shape=tuple(shape), low=float(low), high=float(high), dtype=float64, seed=g.seed()
    )
    return g.cast(g.floor(wide), to=int64)


def bernoulli(g: TorchBuilder, x: Value, p: Any = None, **_: Any) -> Value:
    if isinstance(p, (int, float)):
        if not 0 <= p <= 1:
            raise Refused(f"a probability of {p}")
    else:
        given = x if p is None else p
        inside = g.logical_and(g.greater_equal(given, 0), g.less_equal(given, 1))
        g.expect(inside, "bernoulli: a probability is outside 0..1")
    chance = x if p is None else g.operand(p, float32)
    return g.less(uniform(g, x.shape), g.as_type(chance, float32))


def multinomial(
    g: TorchBuilder, weights: Value, count: int | Size, replacement: bool = False, **_: Any
) -> Value:
    """Drawn places by weights: by the running sum, or, without replacement, by largest keys."""
    rows = weights if len(weights.shape) == 2 else g.unsqueeze(weights, axes=(0,))
    rows = g.cast(rows, to=float64)
    total = g.reduce_sum(rows, axes=(1,), keepdims=True)
    finite = g.logical_and(g.greater_equal(rows, 0), g.less(rows, float("inf")))
    g.expect(finite, "multinomial: a weight is below 0, infinite or not a number")
    g.expect(g.greater(total, 0), "multinomial: all weights of a row are 0")
    if replacement:
        sums = g.cum_sum(rows, axis=1)
        drawn = g.mul(g.cast(uniform(g, (rows.shape[0], count)), to=float64), total)
        below = g.less_equal(g.unsqueeze(sums, axes=(1,)), g.unsqueeze(drawn, axes=(2,)))
        made = g.reduce_sum(g.cast(below, to=int64), axes=(2,))
    else:
        noise = g.neg(g.log(g.maximum(g.cast(uniform(g, rows.shape), to=float64), 1e-30)))
        made = g.top_k(g.div(rows, noise), k=count, axis=1)[1]
    return made if len(weights.shape) == 2 else g.squeeze(made, axes=(0,))


def randomised_relu(
    g: TorchBuilder, x: Value, noise: Value, low: float = 0.125, high: float = 1 / 3,
    training: bool = False, *_: Any, **__: Any,
) -> list[Value]:  # fmt: skip
    """(x, or x times a slope where negative; the slopes): random slopes in training."""
    if not training:
        slope = (float(low) + float(high)) / 2
        return [g.leaky_relu(x, alpha=slope), noise]
    drawn = g.cast(uniform(g, x.shape, float(low), float(high)), to=x.dtype)
    slopes = g.where(g.less_equal(x, 0), drawn, g.scalar(1, x.dtype))
    return [g.mul(x, slopes), slopes]


def permutation(g: TorchBuilder, count: int | Size, **_: Any) -> Value:
    return g.sort(uniform(g, (count,)), axis=0)[1]


def dropout(g: TorchBuilder, x: Value, p: float, train: bool | None = True) -> list[Value]:
    """(x without dropped elements, which are kept)."""
    if not train or not p:
        return [x, g.fill_shape(x.shape, True, boolean)]
    kept = g.greater_equal(uniform(g, x.shape), float(p))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return [g.mul(g.where(kept, x, g.scalar(0, x.dtype)), g.scalar(scale, x.dtype)), kept]


ROWS: dict[str, Build] = {
    "full.default": full, "full_like.default": like(full), "new_full.default": anew(full),
    "zeros.default": filled_with(0), "ones.default": filled_with(1),
    "zeros_like.default": like(filled_with(0)), "ones_like.default": like(filled_with(1)),
    "new_zeros.default": anew(filled_with(0)), "new_ones.default": anew(filled_with(1)),
    "fill.Scalar": like(full), "fill.Tensor": like(full), "zero.default": like(filled_with(0)),
    "empty.memory_format": filled_with(0), "empty_strided.default": filled_with(0),
    "empty_permuted.default": filled_with(0), "empty_like.default": like(filled_with(0)),
    "new_empty.default": anew(filled_with(0)), "new_empty_strided.default": anew(filled_with(0)),
    "scalar_tensor.default": scalar_tensor, "prims.scalar_tensor.default": scalar_tensor,
    "arange.default": lambda g, end, **_: arange(g, 0, end),
    "arange.start": arange, "arange.start_step": arange,
    "prims.iota.default": prims_iota,
    "linspace.default": linspace, "linspace.Tensor_Tensor": linspace,
    "linspace.Tensor_Scalar": linspace, "linspace.Scalar_Tensor": linspace,
    "logspace.default": logspace, "logspace.Tensor_Tensor": logspace,
    "logspace.Tensor_Scalar": logspace, "logspace.Scalar_Tensor": logspace,
    "eye.default": eye, "eye.m": eye,
    "tril_indices.default": triangle_places(False), "triu_indices.default": triangle_places(True),
    "rand.default": uniform, "rand_like.default": like(uniform), "uniform.default": like(uniform),
    "randn.default": normal, "randn_like.default": like(normal),
    "normal.Tensor_Tensor": normal_around, "normal.Tensor_float": normal_around,
    "normal.float_Tensor": normal_around, "normal.float_float": normal_around,
    "normal_functional.default": lambda g, x, mean=0.0, std=1.0, **_: normal_around(
        g, g.fill_shape(x.shape, float(mean), float32), float(std)),
    "randint.default": lambda g, high, shape, **_: integers(g, 0, high, shape),
    "randint.low": integers,
    "randint_like.default": lambda g, x, high, **_: integers(g, 0, high, x.shape),
    "randint_like.low_dtype": lambda g, x, low, high, **_: integers(g, low, high, x.shape),
    "randperm.default": permutation,
    "bernoulli.default": bernoulli, "bernoulli.p": bernoulli, "bernoulli.Tensor": bernoulli,
    "multinomial.default": multinomial,
    "rrelu_with_noise_functional.default": randomised_relu,
    "native_dropout.default": dropout, "dropout.default": dropout,
}  # fmt: skip

"""Rows of matrix products and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import DType, boolean, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Number, TorchBuilder, is_number
from anydim.compiler.frontends.torch.promotion import working
from anydim.compiler.frontends.torch.refusal import Refused


def matmul(g: TorchBuilder, a: Value, b: Value, *_: Any) -> Value:
    a, b = (g.as_type(value, g.result) for value in (a, b))
    return g.matmul(a, b)


def linear(g: TorchBuilder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x @ weight^T + bias."""
    if len(weight.shape) == 1:
        made = g.matmul(x, weight)
    else:
        made = g.matmul(x, g.transpose(weight, perm=(1, 0)))
    return made if bias is None else g.add(made, bias)


def added_product(
    g: TorchBuilder,
    bias: Value,
    a: Value,
    b: Value,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    **_: Any,
) -> Value:
    """beta * bias + alpha * (a @ b); a beta of 0 ignores the bias."""
    made = g.matmul(a, b)
    return scaled_sum(g, bias, made, beta, alpha)


def scaled_sum(g: TorchBuilder, bias: Value, made: Value, beta: Number, alpha: Number) -> Value:
    made = g.as_type(made, bias.dtype)
    if not is_number(alpha, 1):
        made = g.mul(made, g.operand(alpha, made.dtype))
    if is_number(beta, 0):
        return made
    return g.add(made, bias if is_number(beta, 1) else g.mul(bias, g.operand(beta, bias.dtype)))


def summed_products(
    g: TorchBuilder, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * the sum over the batch of a @ b."""
    batch, rows, inner = a.shape
    left = g.reshape(g.transpose(a, perm=(1, 0, 2)), shape=(rows, batch * inner))
    right = g.reshape(b, shape=(batch * inner, b.shape[2]))
    return scaled_sum(g, bias, g.matmul(left, right), beta, alpha)


def outer_sum(
    g: TorchBuilder, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * a of rows * b of columns; of booleans, whether it is not 0."""
    dtype = int64 if g.result == boolean else working(g.result)
    bias, a, b = (g.as_type(each, dtype) for each in (bias, a, b))
    made = scaled_sum(g, bias, g.mul(g.unsqueeze(a, axes=(1,)), b), beta, alpha)
    return g.as_type(made, g.result)


def einsum(g: TorchBuilder, equation: str, operands: Sequence[Value], *, path: Any = None) -> Value:
    """Capital letters and spaces too; as torch, an implicit result has sorted letters."""
    return g.einsum(*operands, equation=equation.replace(" ", ""))


def determinant(g: TorchBuilder, x: Value) -> Value:
    return g.det(*g.to_working(x))


def trace(g: TorchBuilder, x: Value) -> Value:
    (x,) = g.to_working(x)
    marks = g.eye(rows=x.shape[0], columns=x.shape[1], dtype=x.dtype)
    return g.reduce_sum(g.where(g.not_equal(marks, 0), x, g.scalar(0, x.dtype)), axes=(0, 1))


def cross(g: TorchBuilder, a: Value, b: Value, *, dim: int = -1) -> Value:
    """The vector product along an axis of size 3."""
    shape = g.broadcast(a, b)
    a, b = (g.expand(each, shape=shape) for each in g.to_working(a, b))
    axis = dim % len(shape)
    first, second = _roll_three(g, a, axis, 1), _roll_three(g, b, axis, 2)
    third, fourth = _roll_three(g, a, axis, 2), _roll_three(g, b, axis, 1)
    return g.sub(g.mul(first, second), g.mul(third, fourth))


def _roll_three(g: TorchBuilder, x: Value, axis: int, by: int) -> Value:
    parts = [
        g.slice(x, starts=(at % 3,), ends=(at % 3 + 1,), axes=(axis,)) for at in range(by, by + 3)
    ]
    return g.concat(*parts, axis=axis)


def distances(
    g: TorchBuilder, a: Value, b: Value, p: float = 2.0, mode: int | None = None
) -> Value:
    """The p-norms of all differences of rows."""
    a, b = g.to_working(a, b)
    away = g.sub(g.unsqueeze(a, axes=(len(a.shape) - 1,)), g.unsqueeze(b, axes=(len(b.shape) - 2,)))
    return norm_along(g, away, p)


def norm_along(g: TorchBuilder, x: Value, p: float) -> Value:
    """The p-norm along the last axis."""
    if p == 2:
        return g.reduce_l2(x, axes=(-1,))
    if p == 1:
        return g.reduce_l1(x, axes=(-1,))
    size = g.abs(x)
    if p == float("inf"):
        return g.reduce_max(g.pad_end(size), axes=(-1,))
    if p == 0:
        return g.reduce_sum(g.cast(g.not_equal(x, 0), to=x.dtype), axes=(-1,))
    return g.pow(g.reduce_sum(g.pow(size, float(p)), axes=(-1,)), 1 / float(p))


def pair_distances(g: TorchBuilder, x: Value, p: float = 2.0) -> Value:
    """The p-norms of differences of rows i < j, in order."""
    (x,) = g.to_working(x)
    rows = x.shape[0]
    i = g.unsqueeze(g.positions(rows), axes=(1,))
    places = g.nonzero(g.greater(g.positions(rows), i))
    away = g.sub(g.gather(x, places[0], axis=0), g.gather(x, places[1], axis=0))
    made = norm_along(g, away, p)
    count = rows * (rows - 1) // 2
    return g.reshape(made, shape=(count,))


def trilinear(
    g: TorchBuilder, a: Value, b: Value, c: Value, ea: Sequence[int], eb: Sequence[int],
    ec: Sequence[int], summed: Sequence[int], *_: Any,
) -> Value:  # fmt: skip
    """The sum over axes of the product of three tensors with new axes."""
    made = [g.unsqueeze(each, axes=tuple(axes)) if axes else each
            for each, axes in ((a, ea), (b, eb), (c, ec))]  # fmt: skip
    return g.reduce_sum(g.mul(g.mul(made[0], made[1]), made[2]), axes=tuple(summed))


def grouped_product(g: TorchBuilder, x: Value, weight: Value, ends: Value) -> Value:
    """Rows [rows, depth] by the matrix [depth, columns] of their group; `ends` ascend.

    Rows behind the last end are 0.
    """
    made: Value = g.call_definition("grouped_product", x, weight, g.as_type(ends, int64))
    return made


def grouped_mm(
    g: TorchBuilder, x: Value, weight: Value, ends: Value | None = None,
    bias: Value | None = None, out_dtype: DType | None = None, **_: Any,
) -> Value:  # fmt: skip
    """Groups of rows only, the form of a mixture of experts."""
    if ends is None or (len(x.shape), len(weight.shape)) != (2, 3):
        raise Refused(f"groups of {len(x.shape)} and {len(weight.shape)} axes, or without ends")
    made = grouped_product(g, x, weight, ends)
    return made if bias is None else g.add(made, bias)


ROWS: dict[str, Build] = {
    "transformers.grouped_mm_fallback.default": grouped_product,
    "_grouped_mm.default": grouped_mm,
    "matmul.default": matmul, "mm.default": matmul, "bmm.default": matmul, "mv.default": matmul,
    "dot.default": matmul, "vdot.default": matmul,
    "mm.dtype": matmul, "bmm.dtype": matmul,
    "_int_mm.default": matmul,
    "linear.default": linear,
    "addmm.default": added_product, "baddbmm.default": added_product,
    "addmv.default": added_product,
    "addbmm.default": summed_products, "addr.default": outer_sum,
    "einsum.default": einsum,
    "linalg_det.default": determinant, "det.default": determinant,
    "_trilinear.default": trilinear, "trace.default": trace, "linalg_cross.default": cross,
    "_cdist_forward.default": distances, "cdist.default": distances,
    "_pdist_forward.default": pair_distances, "pdist.default": pair_distances,
}  # fmt: skip

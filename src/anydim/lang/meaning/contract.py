"""Sums of products for the numpy evaluator, by matrix multiplication."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy

from anydim.lang.tree import Apply, Expr

Array = numpy.ndarray[Any, Any]


def factors(expr: Expr) -> list[Expr]:
    """The operands of a product, nested products flattened."""
    if isinstance(expr, Apply) and expr.function == "mul":
        return [part for argument in expr.arguments for part in factors(argument)]
    return [expr]


def sum_of_products(arrays: list[Array], lengths: list[int], outer: int) -> Array:
    """The product of the arrays, summed over all dimensions from `outer` on.

    Each array has a dimension per axis, of length 1 where it does not depend on it; `lengths` has
    the lengths of the axes. Multiplies two arrays at a time by matmul, never the whole product.
    """
    arrays = sorted(arrays, key=lambda array: array.size)
    while len(arrays) > 2:
        first, second = arrays.pop(0), arrays.pop(0)
        arrays.append(first * second)
        arrays.sort(key=lambda array: array.size)
    left, right = arrays
    rank = len(lengths)
    scale = 1
    for axis in range(outer, rank):
        if left.shape[axis] == 1 and right.shape[axis] == 1:
            scale *= lengths[axis]
    left = _sum_alone(left, right, outer)
    right = _sum_alone(right, left, outer)
    both = [a for a in range(rank) if left.shape[a] > 1 and right.shape[a] > 1]
    batch = [a for a in both if a < outer]
    inner = [a for a in both if a >= outer]
    rows = [a for a in range(rank) if a not in both and right.shape[a] == 1 and a < outer]
    columns = [a for a in range(outer) if a not in both and a not in rows]
    product = numpy.matmul(_matrix(left, batch, rows, inner), _matrix(right, batch, inner, columns))
    return _restore(product * scale, left, right, (batch, rows, columns), lengths[:outer])


def _sum_alone(array: Array, other: Array, outer: int) -> Array:
    """Sum over the reduced axes that only this array depends on."""
    alone = tuple(a for a in range(outer, array.ndim) if array.shape[a] > 1 and other.shape[a] == 1)
    return array.sum(axis=alone, keepdims=True, dtype=array.dtype) if alone else array


def _matrix(array: Array, batch: list[int], first: list[int], second: list[int]) -> Array:
    rest = [a for a in range(array.ndim) if a not in (*batch, *first, *second)]
    moved = array.transpose(*batch, *first, *second, *rest)

    def count(axes: list[int]) -> int:
        return prod(array.shape[a] for a in axes)

    return moved.reshape(count(batch), count(first), count(second))


def _restore(
    product: Array, left: Array, right: Array,
    groups: tuple[list[int], list[int], list[int]], lengths: list[int],
) -> Array:  # fmt: skip
    batch, rows, columns = groups
    order = [*batch, *rows, *columns]
    shape = [max(left.shape[a], right.shape[a]) for a in order]
    result = product.reshape(shape).transpose([order.index(a) for a in range(len(lengths))])
    return numpy.array(numpy.broadcast_to(result, lengths), dtype=product.dtype)

"""Results whose size is known only at run time: count first, then fill.

The count becomes a dim whose bound holds for every input. A routine fills a result of that size, or
one of the largest size that is then sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from anydim.base.dtypes import boolean, int64
from anydim.base.errors import GraphError
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, as_size, product


class Makes(Protocol):
    """An object that adds nodes and dims: a builder, or a node of an imported model."""

    @property
    def box(self) -> Box:
        """The dims declared so far."""

    def kind(self, value: str) -> TensorType:
        """The type of a value."""

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return the result."""

    def emit_many(self, name: str, results: int, /, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node and return its results."""

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a new dim."""

    def constrain(self, *sizes: Size) -> None:
        """Constrain sizes to be at least 0."""

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""


def nonzero(makes: Makes, x: str) -> str:
    """The indices [axes, count] of the elements that are not zero, in row-major order.

    A scalar gives [0, count], as the standard specifies: it has no axes.
    """
    kind = makes.kind(x)
    if not kind.rank:
        indices = nonzero(makes, makes.emit("reshape", x, shape=(1,)))
        return makes.emit("slice", indices, starts=(0,), ends=(0,), axes=(0,))
    marks = x if kind.dtype == boolean else makes.emit("cast", x, to=boolean)
    count = _count(makes, marks, product(kind.shape))
    return makes.emit("nonzero_fill", x, count=count)


def compress(makes: Makes, x: str, condition: str, axis: int | None) -> str:
    """Select the slices along an axis (the elements if None) where a condition holds."""
    marks = makes.kind(condition)
    if marks.rank != 1 or marks.dtype != boolean:
        raise GraphError(f"operator 'compress': the condition is {marks}, expected a bool vector")
    extent = _extent("compress", makes.kind(x), axis)
    count = _count(makes, condition, marks.shape[0], extent)
    return makes.emit("compress_fill", x, condition, count=count, axis=axis)


def unique(
    makes: Makes, x: str, axis: int | None = None, in_order: bool = True,
    requested: Sequence[bool] = (True, True, True),
) -> list[str]:  # fmt: skip
    """(unique elements or slices, first index, group of each, counts); empty if not requested."""
    kind = makes.kind(x)
    extent = _extent("unique", kind, axis)
    indices, inverse, counts = requested
    *results, number = makes.emit_many(
        "unique_fill", 5, x, axis=axis, sorted=in_order, indices=indices, inverse=inverse,
        counts=counts,
    )  # fmt: skip
    count = _bind_count(makes, number, extent)
    along = 0 if axis is None else axis % kind.rank
    fronts = (True, indices, False, counts)
    axes = (along, 0, 0, 0)
    return [
        front(makes, value, count, a) if cut else value
        for value, cut, a in zip(results, fronts, axes)
    ]


def non_max_suppression(
    makes: Makes, boxes: str, scores: str, *scalars: str, center: bool = False
) -> str:
    """Indices (batch, class, box) of the boxes kept by non-maximum suppression."""
    rows, number = makes.emit_many(
        "non_max_suppression_fill", 2, boxes, scores, *scalars, center=center
    )
    return front(makes, rows, _bind_count(makes, number, makes.kind(rows).shape[0]), 0)


def front(makes: Makes, value: str, count: Size, axis: int) -> str:
    """The first `count` slices of a tensor."""
    return makes.emit("slice", value, starts=(as_size(0),), ends=(count,), axes=(axis,))


def _extent(name: str, kind: TensorType, axis: int | None) -> Size:
    """The size of an axis, or the element count if `axis` is None."""
    if axis is None:
        return product(kind.shape)
    if not -kind.rank <= axis < kind.rank:
        raise GraphError(f"operator '{name}': axis {axis} of a tensor with {kind.rank} axes")
    return kind.shape[axis]


def _count(makes: Makes, marks: str, *limits: Size) -> Size:
    """Count the true elements of a bool tensor, as a dim."""
    numbers = makes.emit("cast", marks, to=int64)
    rank = makes.kind(marks).rank
    total = makes.emit("reduce_sum", numbers, axes=tuple(range(rank)), keepdims=False)
    return _bind_count(makes, total, *limits)


def _bind_count(makes: Makes, number: str, *limits: Size) -> Size:
    highs = [makes.box.interval(size).hi for size in limits]
    high = min((high for high in highs if high is not None), default=None)
    count = makes.dim("count", 0, high)
    makes.constrain(*(size - count for size in limits))
    makes.find(number, (count,))
    return count

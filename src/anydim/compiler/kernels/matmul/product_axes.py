"""The axes of a product, classified by the factors that they index, and merged.

    C[batch, row, column] = sum over k of A[batch, row, k] * B[batch, k, column]

All forms of products start here: contractions, convolutions (A are the weights, B the windows of a
tensor), int8 products, and products by work-groups. Axes of extent 1 index nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from anydim.base.records import dataclass
from anydim.lang.tree import Axis, Read, Statement
from anydim.lang.tree.affine import Affine
from anydim.sizes import Size, as_size, product

Parts = tuple[tuple[Size, Size], ...]  # axes as (extent, stride)


@dataclass(frozen=True)
class Factor:
    """A factor of a product: its tensor, and the address of its element for each index of the axes.

    `read` is its read, if that may be out of bounds or stepped.
    """

    tensor: str
    address: Affine
    read: Read | None = None


@dataclass(frozen=True)
class ProductAxes:
    """The axes of the result of a product, those of A alone, of B alone, of both factors and of
    neither, and the reduced axes."""

    result: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    alone: tuple[Axis, ...]
    sums: tuple[Axis, ...]


def product_axes(
    axes: Iterable[Axis], reduced: Iterable[Axis], in_a: Collection[str], in_b: Collection[str]
) -> ProductAxes:
    """Classify the axes of a sum of products of factors that use the axes `in_a` and `in_b`."""
    result = tuple(axis for axis in axes if axis.extent.constant != 1)

    def used_by(a: bool, b: bool) -> tuple[Axis, ...]:
        return tuple(x for x in result if (x.name in in_a, x.name in in_b) == (a, b))

    classes = used_by(True, False), used_by(False, True), used_by(True, True), used_by(False, False)
    sums = tuple(axis for axis in reduced if axis.extent.constant != 1)
    return ProductAxes(result, *classes, sums)


def matrix_axes(
    statement: Statement, in_a: Collection[str], in_b: Collection[str]
) -> ProductAxes | None:
    """The axes of a product of matrices; None for other products.

    The last axis of the result indexes B alone, and reduced ones index both factors.
    """
    axes = product_axes(statement.axes, statement.reduced, in_a, in_b)
    if not axes.columns or axes.columns[-1] is not axes.result[-1]:
        return None
    return axes if all(x.name in in_a and x.name in in_b for x in axes.sums) else None


def merge_axes(
    axes: Sequence[Axis], streams: Sequence[Affine], pinned: Collection[str] = ()
) -> list[tuple[Axis, ...]]:
    """Merge adjacent axes where every stream strides over both as over one.

    Axes in `pinned` stay alone: their index is used as a value, or in an address without strides.
    """
    groups: list[tuple[Axis, ...]] = []
    for axis in axes:
        if groups and not {axis.name, groups[-1][-1].name} & {*pinned}:
            if is_one_axis((groups[-1][-1], axis), *streams):
                groups[-1] = (*groups[-1], axis)
                continue
        groups.append((axis,))
    return groups


def is_one_axis(axes: Sequence[Axis], *streams: Affine) -> bool:
    """Whether every stream strides over axes as over one axis."""
    return all(
        stream.stride(outer.name) == inner.extent * stream.stride(inner.name)
        for outer, inner in pairwise(axes)
        for stream in streams
    )


def merged_extent(axes: Sequence[Axis]) -> Size:
    """The extent of merged axes; 1 without axes."""
    return product(axis.extent for axis in axes)


def merged_stride(axes: Sequence[Axis], stream: Affine) -> Size:
    """The stride of merged axes; 0 without axes."""
    return stream.stride(axes[-1].name) if axes else as_size(0)


def strided_parts(axes: Sequence[Axis], stream: Affine) -> Parts:
    """Axes as (extent, stride) in a stream, as packing takes them."""
    return tuple((axis.extent, stream.stride(axis.name)) for axis in axes)

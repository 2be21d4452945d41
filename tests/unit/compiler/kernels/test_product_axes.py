"""Promise: axes of a product are classified by the factors that they index, and merged."""

from __future__ import annotations

import pytest

from anydim.compiler.kernels.matmul.product_axes import (
    is_one_axis,
    matrix_axes,
    merge_axes,
    merged_extent,
    merged_stride,
    product_axes,
    strided_parts,
)
from anydim.lang.tree import Apply, Axis, Index, Read, Statement
from anydim.lang.tree.affine import Affine
from anydim.sizes import Size, as_size

M, K, N = map(Size.symbol, "MKN")
B, ROW, COLUMN, ALONE, UNIT, SUM = (
    Axis("b", as_size(2)), Axis("m", M), Axis("n", N), Axis("o", as_size(3)),
    Axis("u", as_size(1)), Axis("k", K),
)  # fmt: skip


def names(axes: tuple[Axis, ...]) -> str:
    return "".join(axis.name for axis in axes)


def statement(*axes: Axis) -> Statement:
    factors = (Read("A", (Index("k"),)), Read("B", (Index("k"),)))
    return Statement("C", axes, Apply("mul", factors), "add", (SUM,))


def test_axes_by_the_factors_that_use_them() -> None:
    found = product_axes((B, ROW, UNIT, ALONE, COLUMN), (SUM, UNIT), {"b", "m", "k"}, {*"bnk"})
    classes = (found.result, found.rows, found.columns, found.batch, found.alone, found.sums)
    assert [names(each) for each in classes] == ["bmon", "m", "n", "b", "o", "k"]


@pytest.mark.parametrize("axes, in_a, in_b, is_matrix", [
    ((ROW, COLUMN), "mk", "nk", True),
    ((COLUMN, ROW), "mk", "nk", False),  # rows are last
    ((ROW, COLUMN), "mk", "n", False),  # B has no sum
    ((ROW,), "mk", "k", False),  # no columns
])  # fmt: skip
def test_products_of_matrices(
    axes: tuple[Axis, ...], in_a: str, in_b: str, is_matrix: bool
) -> None:
    assert (matrix_axes(statement(*axes), set(in_a), set(in_b)) is not None) == is_matrix


def test_axes_merge_where_all_streams_stride_over_them_as_over_one() -> None:
    whole = Affine.of(as_size(0), {"b": M * N, "m": N, "n": as_size(1)})
    gap = Affine.of(as_size(0), {"b": 2 * M * N, "m": N, "n": as_size(1)})
    axes = (B, ROW, COLUMN)
    assert [names(each) for each in merge_axes(axes, [whole])] == ["bmn"]
    assert [names(each) for each in merge_axes(axes, [whole, gap])] == ["b", "mn"]
    assert [names(each) for each in merge_axes(axes, [whole], {"n"})] == ["bm", "n"]
    assert is_one_axis(axes, whole) and not is_one_axis(axes, gap)


def test_merged_axes_have_the_stride_of_the_innermost() -> None:
    stream = Affine.of(as_size(0), {"m": 3 * N, "n": as_size(3)})
    assert merged_extent((ROW, COLUMN)) == M * N
    assert merged_stride((ROW, COLUMN), stream) == 3
    assert (merged_extent(()), merged_stride((), stream)) == (1, 0)
    assert strided_parts((ROW, COLUMN), stream) == ((M, 3 * N), (N, as_size(3)))

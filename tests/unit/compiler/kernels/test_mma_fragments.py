"""Promise: warps multiply fragments of matrices as the PTX ISA shares them out."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DType, bfloat16, float16, float32, uint32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.mma_fragments import FRAGMENT_LAYOUTS, SUMS, WARP
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.evaluated.fragments import multiply_fragments, round_to_tf32
from tests.unit.compiler.targets.test_groups import grouped


def given(dtype: DType, left: np.ndarray, right: np.ndarray) -> list[list[np.ndarray]]:
    """What each item gives of two matrices."""
    shares, made = FRAGMENT_LAYOUTS[dtype], []
    word = np.float32 if dtype == float32 else np.uint32
    for item in range(WARP):
        g, t = divmod(item, 4)
        values = []
        for place in shares.left:
            row, column = place(g, t)
            values.append(left[row, column : column + shares.each])
        for place in shares.right:
            row, column = place(g, t)
            values.append(right[row : row + shares.each, column])
        made.append([np.ascontiguousarray(value).view(word) for value in values])
    return made


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_the_product_of_a_warp(dtype: DType) -> None:
    random, depth = np.random.default_rng(0), FRAGMENT_LAYOUTS[dtype].depth
    left = random.integers(-9, 9, (16, depth)).astype(dtype.numpy)
    right = random.integers(-9, 9, (depth, 8)).astype(dtype.numpy)
    whole = left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_array_equal(multiply_fragments(dtype, given(dtype, left, right)), whole)


def test_every_element_is_somebodys() -> None:
    for shares in FRAGMENT_LAYOUTS.values():
        for places, shape in (
            (shares.left, (16, shares.depth)), (shares.right, (shares.depth, 8)), (SUMS, (16, 8)),
        ):  # fmt: skip
            seen = np.zeros(shape, int)
            for item in range(WARP):
                for place in places:
                    row, column = place(*divmod(item, 4))
                    if places is shares.left:
                        seen[row, column : column + shares.each] += 1
                    elif places is shares.right:
                        seen[row : row + shares.each, column] += 1
                    else:
                        seen[row, column] += 1
            assert (seen == 1).all()


def test_rounding_to_11_bits() -> None:
    unit = np.float32(2.0**-10)
    values = np.array([1 + unit / 2, 1 + unit / 4, -1 - unit / 2, np.inf, np.nan, 0], np.float32)
    expected = np.array([1 + unit, 1, -1 - unit, np.inf, np.nan, 0], np.float32)
    np.testing.assert_array_equal(round_to_tf32(values), expected)


def sums_of(group: int) -> ir.Kernel:
    one = ir.Const(ir.Type(uint32), 0)
    names = tuple(f"c{n}" for n in range(4))
    step = ir.Fragments(float16, names, (one,) * 4, (one,) * 2)
    zero = ir.Const(ir.Type(float32), 0.0)
    return grouped([*(ir.Declare(name, zero) for name in names), step], group, 4)


def test_items_without_a_warp_are_refused() -> None:
    arrays = [np.zeros(4, np.float32)] * 2
    evaluator.run(sums_of(2 * WARP), arrays, [0])
    with pytest.raises(InternalError, match="of 33 work-items has no whole warps"):
        evaluator.run(sums_of(33), arrays, [0])
    with pytest.raises(InternalError, match="outside a work-group"):
        evaluator.run(sums_of(0), arrays, [0])


def test_as_text() -> None:
    text = print_kernel(sums_of(WARP))
    assert "c0, c1, c2, c3 += float16 [0.uint32, 0.uint32, 0.uint32, 0.uint32] @ [0.uint32" in text

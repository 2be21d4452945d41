"""Loops of vectors ask for each line that they will write to, once."""

from __future__ import annotations

import pytest

from anydim.base.dtypes import DType, float16, float32, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.vector_loops import store_prefetches
from anydim.compiler.kernels.ir import constant, number


@pytest.mark.parametrize(
    ("dtype", "lanes", "vectors", "lines"),
    [(float32, 16, 4, 4), (float32, 8, 4, 2), (float16, 16, 4, 2), (uint8, 16, 4, 1),
     (float32, 16, 1, 1), (float32, 1, 4, 0)],
)  # fmt: skip
def test_a_line_is_asked_for_once(dtype: DType, lanes: int, vectors: int, lines: int) -> None:
    stores = [
        ir.Store("y", constant(n * lanes), number(dtype, 0, lanes)) for n in range(vectors)
    ]  # fmt: skip
    asked = store_prefetches(stores)
    assert len(asked) == lines
    places = set()
    for each in asked:
        assert isinstance(each, ir.Prefetch) and each.write and each.buffer == "y"
        assert isinstance(each.offset, ir.Const)
        places.add(int(each.offset.value) * dtype.bytes // 64)
    assert len(places) == lines


def test_vectors_that_are_masked_are_the_last_ones() -> None:
    mask = number(ir.FLAG.dtype, 1, 8)
    assert store_prefetches([ir.Store("y", constant(0), number(float32, 0, 8), mask)]) == []

"""Promise: operands whose dims nothing relates broadcast as a call says, along vectors."""

from __future__ import annotations

import itertools
import re

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType

SHAPES = ((1, 1), (1, 5), (7, 1), (7, 5), (0, 1), (1, 0))
LONG = ((1, 130), (3, 130), (3, 1), (1, 1))


def model(dtype: DType, count: int) -> ad.Model:
    """Sums of so many operands, each of dims of its own."""
    g = ad.Builder("g")
    total = None
    for number in range(count):
        dims = [g.dim(f"{axis}{number}", 0, None) for axis in "nm"]
        x = g.input(f"x{number}", dtype, dims)
        total = x if total is None else total + x
    g.output("y", total)
    return ad.compile(g.graph())


@pytest.mark.parametrize("dtype", [ad.float32, ad.uint8, ad.int64], ids=str)
def test_two_operands(dtype: DType) -> None:
    add, random = model(dtype, 2), numpy.random.default_rng(0)
    for shapes in (*itertools.product(SHAPES, SHAPES), *itertools.product(LONG, LONG)):
        x, y = (random.integers(0, 9, shape).astype(dtype.numpy) for shape in shapes)
        try:
            wanted = x + y
        except ValueError:
            with pytest.raises(ad.DimError):
                add(x0=x, x1=y)
            continue
        numpy.testing.assert_array_equal(add(x0=x, x1=y)["y"], wanted)


def test_three_operands() -> None:
    add, random = model(ad.float32, 3), numpy.random.default_rng(0)
    for shapes in itertools.product(LONG, LONG, LONG):
        arrays = [random.integers(0, 9, shape).astype(numpy.float32) for shape in shapes]
        named = {f"x{number}": array for number, array in enumerate(arrays)}
        numpy.testing.assert_array_equal(add(**named)["y"], sum(arrays))


def test_nothing_is_gathered() -> None:
    """Elements of an operand are read as vectors, or once for all lanes."""
    text = model(ad.float32, 2).show("kernels")
    assert not re.search(r"\[\[", text)

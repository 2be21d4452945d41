"""Promise: a size fits a range only where it always does; what does not wraps as in numpy."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import DTYPES, DType
from anydim.sizes import ADDRESSABLE, SHORT, Box, Dim, Size, fits, parse, wrapped

TYPES = [dtype for dtype in DTYPES.values() if dtype.is_integer and dtype.bits in (8, 16, 32)]
N = Size.symbol("n")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_wrapped_sizes_are_those_of_numpy(dtype: DType) -> None:
    size = wrapped(N, *dtype.range)
    for edge in (0, 1, 127, 128, 255, 256, 300, 65541, 2**31 - 1, 2**31, 2**32, 2**32 + 5):
        expected = numpy.array(edge).astype(dtype.numpy)
        assert size.evaluate({"n": edge}) == int(expected), edge


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("n", 0, 300, True), ("n", 0, 299, False), ("n", 1, 300, False), ("n - 1", -1, 299, True),
        ("n - 1", 0, 299, False), ("n*n", 0, 90_000, True), ("n*n", 0, 89_999, False),
        ("n % 7", 0, 6, True), ("n % 7", 0, 5, False), ("5", 5, 5, True), ("5", 6, 9, False),
    ],
)  # fmt: skip
def test_ends_of_ranges(text: str, low: int, high: int, expected: bool) -> None:
    assert fits(parse(text), low, high, Box.of(Dim("n", 0, 300))) is expected


def test_a_dim_without_a_bound_is_what_memory_holds() -> None:
    box = Box.of(Dim("n"))
    assert fits(N, 0, ADDRESSABLE, box)
    assert not fits(N, 0, ADDRESSABLE - 1, box)
    assert fits(N, 0, SHORT, box, SHORT)
    assert not fits(N, 0, SHORT - 1, box, SHORT)
    assert fits(N, 0, SHORT, Box(), SHORT)  # a size that is no dim of the box


def test_a_lower_bound_stays() -> None:
    box = Box.of(Dim("n", 100), Dim("m", 0, 5))
    assert [(d.lo, d.hi) for d in box.at_most(10).dims] == [(100, 100), (0, 5)]
    assert Box.of(Dim("m", 0, 5)).at_most(10).dims == (Dim("m", 0, 5),)

"""Promise: a shift by the width of a type, or more, gives 0, or to the right the sign."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

COUNTS = (0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 127)


def _wrapped(number: int, dtype: str) -> int:
    info = numpy.iinfo(dtype)
    return (number - int(info.min)) % (1 << info.bits) + int(info.min)


def _right(number: int, count: int) -> int:
    return number >> count if count >= 0 else -(number < 0)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
)
def test_counts(dtype: str, target: str) -> None:
    g = ad.Builder()
    x, count = (g.input(name, dtype, ["n"]) for name in ("x", "count"))
    g.output("left", g.shift_left(x, count))
    g.output("right", g.shift_right(x, count))
    g.output("all", g.shift_right(x, numpy.array(numpy.iinfo(dtype).bits, dtype)))
    info = numpy.iinfo(dtype)
    numbers = [int(info.min), int(info.max), 1, int(info.max) // 3]
    counts = [*COUNTS, *([-1, -100] if info.min else [200])]
    pairs = [(number, each) for number in numbers for each in counts]
    found = ad.compile(g, target=target)(*(numpy.array(each, dtype) for each in zip(*pairs)))
    shown = {name: found[name].tolist() for name in ("left", "right", "all")}
    assert shown["left"] == [_wrapped(a << b, dtype) if b >= 0 else 0 for a, b in pairs]
    assert shown["right"] == [_right(a, b) for a, b in pairs]
    assert shown["all"] == [-(a < 0) for a, _ in pairs]

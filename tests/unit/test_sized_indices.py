"""Promise: a size in a text has the type that the text gives it, as data, index or range."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import InputError

X = numpy.arange(300, dtype=numpy.float32)


def made(body: str, x: numpy.ndarray = X) -> Any:
    return ad.define(f"def f(float(N) x) -> (y) {{ {body} }}").f(x)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = uint8(N)", 44),
        ("y = int64(int8(N - 100)) // 7", -8),
        ("y = int64(uint8(N) - uint8(45))", 255),
        ("y = int64(int32(N)*int32(N)*int32(N)*int32(N))", -489934592),
        ("y = N*4611686018427387904", 0),
        ("y = N*4611686018427387905 - N", 0),
        ("y = 0 for t in 0:uint8(N) { y = y + 1 }", 44),
    ],
)
def test_as_data(body: str, expected: int) -> None:
    assert int(made(body)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y(i) = 1.0 where i in 0:uint8(N)", [1] * 44),
        ("y(i) = x(uint8(N)) where i in 0:2", [44, 44]),
        ("y(i) = x(int64(uint8(N))) where i in 0:2", [44, 44]),
        ("y(i) = x(i + uint8(N) + uint8(N)) where i in 0:2", [88, 89]),
        ("y(i) = x(uint8(N)*uint8(7)) where i in 0:1", [44 * 7 % 256]),
        ("y(i) = x(uint8(i*2)) where i in 0:N", [i * 2 % 256 for i in range(300)]),
        ("y(i) = x(i) where i in 0:min(uint8(N), uint8(50))", list(range(44))),
    ],
)
def test_as_indices_and_ranges(body: str, expected: list[int]) -> None:
    assert made(body).tolist() == expected


def test_an_index_that_wraps_below_0_is_an_error() -> None:
    text = "y(i) = x(int8(i)) where i in 0:N"
    assert made(text, X[:128]).tolist() == list(range(128))
    with pytest.raises(InputError, match="outside"):
        made(text)

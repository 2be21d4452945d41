"""Promise: dims, sizes and ranges are read as written, and another form is refused with a hint."""

from __future__ import annotations

import pytest

from anydim.base.errors import OptionError
from anydim.cli.options import DIM, RANGE, SIZES, dims_by_name
from anydim.sizes import Dim


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("seq=1..512", ("seq", Dim(1, 512))),
        ("seq=0..0", ("seq", Dim(0, 0))),
        ("seq=1..", ("seq", Dim(1))),
        ("seq=128", ("seq", Dim(128, 128))),
        ("past_len=0..7", ("past_len", Dim(0, 7))),
        ("p2o.DynamicDimension.0=1..8", ("p2o.DynamicDimension.0", Dim(1, 8))),
        ("past + seq=1..", ("past + seq", Dim(1))),
        ("x:0.2=48", ("x:0.2", Dim(48, 48))),
    ],
)
def test_dims(text: str, dim: tuple[str, Dim]) -> None:
    assert DIM.convert(text, None, None) == dim


@pytest.mark.parametrize("text", ["", "seq", "seq=", "=1..2", "seq=1-5", "seq=a..b", "seq=..5"])
def test_other_forms_of_dims(text: str) -> None:
    with pytest.raises(OptionError, match=r"NAME=LOW\.\.HIGH[\s\S]*seq=1\.\. "):
        DIM.convert(text, None, None)


def test_bounds_that_cross() -> None:
    with pytest.raises(OptionError, match="upper bound 2 is below"):
        DIM.convert("seq=5..2", None, None)


def test_a_dim_given_twice() -> None:
    with pytest.raises(OptionError, match="--dim n is given twice"):
        dims_by_name([("m", Dim(1, 2)), ("n", Dim(1, 2)), ("n", Dim(1, 3))])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("batch=8,seq=77", {"batch": 8, "seq": 77}),
        ("batch=8, seq=0", {"batch": 8, "seq": 0}),
        ("", {}),
    ],
)
def test_sizes(text: str, sizes: dict[str, int]) -> None:
    assert SIZES.convert(text, None, None) == sizes


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=x", "=3", "n=1,n=2", "n=-1", "n=1..2"])
def test_other_forms_of_sizes(text: str) -> None:
    with pytest.raises(OptionError, match=r"is not NAME=SIZE|is given twice"):
        SIZES.convert(text, None, None)


def test_ranges() -> None:
    assert RANGE.convert("ids=0..30521", None, None) == ("ids", (0, 30521))
    assert RANGE.convert("ids=-3..-1", None, None) == ("ids", (-3, -1))


@pytest.mark.parametrize("text", ["ids", "ids=3", "ids=5..4", "ids=1.."])
def test_other_forms_of_ranges(text: str) -> None:
    with pytest.raises(OptionError, match=r"INPUT=LOW\.\.HIGH"):
        RANGE.convert(text, None, None)

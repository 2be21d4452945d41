"""Numbers of Python take the type that is asked for, where they stay what they are."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from anydim.base.dtypes import DTYPES, array_of_numbers


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (3, "float32"),
        ([1, -128, 127], "int8"),
        ([[2.0], [3.0]], "int64"),
        ([0, 1], "bool"),
        (True, "float16"),
        ([], "int64"),
        ([2**63], "uint64"),
        ([1, 2.5], "bfloat16"),
        ([-8, 7], "int4"),
    ],
)
def test_numbers_that_stay_what_they_are(value: Any, name: str) -> None:
    taken = array_of_numbers(value, DTYPES[name].numpy)
    assert taken.dtype == DTYPES[name].numpy
    assert taken.astype(numpy.float64).tolist() == numpy.asarray(value, numpy.float64).tolist()


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        ([300], "uint8", "300 is no uint8"),
        ([3, -1], "uint64", "-1 is no uint64"),
        ([2**63], "int64", "9223372036854775808 is no int64"),
        (1.5, "int64", "1.5 is no int64"),
        (float("nan"), "int32", "nan is no int32"),
        ([0, 2], "bool", "2 is no bool"),
        ([8], "int4", "8 is no int4"),
        ("12", "float32", "'12' is not a number"),
        ([1, "2"], "float32", "not all are numbers"),
    ],
)
def test_numbers_that_would_change(value: Any, name: str, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        array_of_numbers(value, DTYPES[name].numpy)

"""Literals are equal only when nothing can tell them apart."""

import math

import pytest

from anydim.base.dtypes import boolean, float32, int64
from anydim.lang.tree import Literal
from anydim.lang.tree.affine import affine


@pytest.mark.parametrize("left, right, same", [
    (Literal(1, float32), Literal(1.0, float32), True),
    (Literal(math.nan, float32), Literal(float("nan"), float32), True),
    (Literal(0.0, float32), Literal(-0.0, float32), False),
    (Literal(1), Literal(1.0), False),
    (Literal(1), Literal(True), False),
    (Literal(1, int64), Literal(1, float32), False),
    (Literal(1, boolean), Literal(True, boolean), True),
])  # fmt: skip
def test_equality(left, right, same):
    assert (left == right) is same
    assert (len({left, right}) == 1) is same


def test_what_is_remembered_of_a_number_does_not_leak_to_another():
    assert affine(Literal(1)) is not None
    assert affine(Literal(1.0)) is None

"""Promise: element types among attributes may be names, and other values are errors of users."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.graph.operator import OPERATORS, REQUIRED, TYPES

TYPED = sorted({(op.name, name) for op in OPERATORS.values() for name in TYPES & {*op.attributes}})


@pytest.mark.parametrize(("name", "attribute"), TYPED)
def test_attributes_of_these_names_are_types(name: str, attribute: str) -> None:
    default = OPERATORS[name].attributes[attribute]
    assert default is None or default is REQUIRED or isinstance(default, DType)


def quantised(to: Any) -> ad.Builder:
    builder = ad.Builder("g")
    x = builder.input("x", "float32", [3])
    y = builder.quantize(x, builder.constant(0.5), builder.constant(numpy.int8(0)), to=to)
    builder.output("y", y)
    return builder


def test_a_type_may_be_a_name() -> None:
    one, other = (ad.compile(quantised(to)) for to in ("int8", ad.int8))
    assert one.outputs[0].dtype == other.outputs[0].dtype == ad.int8


@pytest.mark.parametrize("wrong", ["int9", 3, None, [], object()])
def test_other_values_are_errors_of_users(wrong: Any) -> None:
    builder = ad.Builder("g")
    x = builder.input("x", "float32", [3])
    for operator in (builder.cast_saturated, builder.bit_cast, builder.cast):
        with pytest.raises(ad.UserError):
            operator(x, to=wrong)
    with pytest.raises(ad.UserError):
        builder.quantize(x, builder.constant(0.5), builder.constant(0), to=wrong)
    with pytest.raises(ad.UserError):
        builder.fill(shape=(3,), dtype=wrong)

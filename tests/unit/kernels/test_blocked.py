"""The parts of the driver of blocked products: loops from levels, operands from roles."""

from __future__ import annotations

from anydim.kernels import ir
from anydim.kernels.product.blocked import Level, nested, roles_of
from anydim.kernels.write.arithmetic import variable


def test_levels_are_loops_around_each_other() -> None:
    first, second, last = (ir.Let(name, variable("x")) for name in ("first", "second", "last"))
    (outer,) = nested([Level("i", 0, 4, 2, [first], [last]), Level("j", 0, 3, 1, [second])])
    assert isinstance(outer, ir.For) and outer.variable == "i"
    before, inner, behind = outer.body
    assert (before, behind) == (first, last)
    assert isinstance(inner, ir.For) and (inner.variable, inner.body) == ("j", (second,))


def test_a_packed_factor_is_an_operand_of_its_own() -> None:
    factors = (("w", "a"), ("w", "b"))
    roles, buffers = roles_of(factors, {"b"}, ["bias", "w"], ["y"])
    assert roles == (("w", "a"), ("w", "b"), ("bias", "r2"), ("y", "y3"))
    assert buffers == {"w": "a", "bias": "r2", "y": "y3"}


def test_a_tensor_that_is_both_factors_is_one_operand() -> None:
    roles, buffers = roles_of((("x", "a"), ("x", "b")), (), ["x"], ["y"])
    assert roles == (("x", "a"), ("y", "y1"))
    assert buffers == {"x": "a", "y": "y1"}

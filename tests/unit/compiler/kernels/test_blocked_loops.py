"""The parts of blocked products: loops from levels, operands from roles, sums, templates."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from anydim.base.dtypes import float32, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import variable
from anydim.compiler.kernels.matmul.accumulators import Accumulators, multiply_add
from anydim.compiler.kernels.matmul.blocked_loops import Level, nest_levels
from anydim.compiler.kernels.matmul.matmul_kernel import function_library, roles_of
from anydim.compiler.kernels.template import Misfit, form_template


def test_levels_are_loops_around_each_other() -> None:
    first, second, last = (ir.Let(name, variable("x")) for name in ("first", "second", "last"))
    (outer,) = nest_levels([Level("i", 0, 4, 2, [first], [last]), Level("j", 0, 3, 1, [second])])
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


def test_sums_name_each_row_once_and_add_to_every_register() -> None:
    code, vector = Writer(), ir.Type(float32, 4)
    sums = Accumulators(code, vector, 2, 3)
    columns = [ir.Var(vector, f"b{j}") for j in range(3)]
    sums.add([ir.Var(ir.Type(float32), f"a{i}") for i in range(2)], columns)
    lets = [step for step in code.written if isinstance(step, ir.Let)]
    assigned = [step for step in code.written if isinstance(step, ir.Assign)]
    assert [step.value for step in lets] == [
        ir.Splat(vector, ir.Var(ir.Type(float32), f"a{i}")) for i in range(2)
    ]
    wanted = [
        (sums[i, j].name, multiply_add(ir.Var(vector, lets[i].name), columns[j], sums[i, j]))
        for i, j in sums.indices
    ]
    assert [(step.name, step.value) for step in assigned] == wanted


def test_a_library_of_one_function_is_written_when_it_is_asked_for() -> None:
    asked: list[str] = []

    def write(code: Writer) -> None:
        asked.append("once")
        code.emit(ir.Store("y", ir.Const(ir.INDEX, 0), ir.Const(ir.Type(int32), 1)))

    library = function_library("one", [ir.Pointer("y", int32)], write)
    assert not asked
    (function,) = library.functions
    assert (function.name, function.public, library.name) == ("one", True, "one")
    assert library.functions and asked == ["once"]


def test_a_group_without_the_form_is_refused() -> None:
    given = (Mock(steps=()), None, None, None)
    template = form_template(
        "small", int, lambda *_: None, lambda *_: 1, lambda *_: pytest.fail("it has no form")
    )
    assert template.match(*given) is None  # type: ignore[arg-type]
    with pytest.raises(Misfit, match="template 'small' was to lower"):
        template.lower(given[0], 1, *given[1:])  # type: ignore[arg-type]

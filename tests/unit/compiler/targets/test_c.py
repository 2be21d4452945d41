"""Promise: C text of kernels does what the evaluator does; a missing compiler is said so.

The tests of all targets, run for C too, are slow: this is a selection, few files each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import DType, boolean, float32, float64, int8, int32, int64, uint16
from anydim.base.errors import OptionError
from anydim.compiler.kernels import ir
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.targets.c.compilers import compiler
from anydim.compiler.targets.c.dialect import C11
from anydim.compiler.targets.c.forms import Form, steps
from anydim.compiler.targets.c.literals import literal
from anydim.compiler.targets.c.names import Scope, identifier
from anydim.compiler.targets.c.render import render
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.run import launch
from anydim.compiler.targets.targets import target
from tests.kernel_targets import needs_compiler
from tests.unit.compiler.targets.programs import (
    START,
    STOP,
    elementwise,
    index,
    kernel,
    loop,
    number,
    op,
)
from tests.unit.compiler.targets.test_programs import LENGTH, Program


@pytest.fixture(autouse=True)
def _c() -> Iterator[None]:
    with settings.override(target="c"):
        yield


FLOATS = ["add", "div", "fma", "neg", "abs", "sqrt", "floor", "round", "min", "fast_max", "exp"]
INTEGERS = ["add", "mul", "neg", "abs", "min", "floordiv", "mod", "fmod", "quotient", "bit_not",
            "shift_left", "shift_right", "less"]  # fmt: skip
ARITIES = {"neg": 1, "abs": 1, "sqrt": 1, "floor": 1, "round": 1, "exp": 1, "bit_not": 1, "fma": 3}


def applied(functions: list[str], dtype: DType, lanes: int) -> ir.Kernel:
    """A kernel with one result for each function of x0, x1, x2."""
    inputs = [ir.Operand(f"x{n}", dtype) for n in range(3)]
    loads = [ir.Load(ir.Type(dtype, lanes), o.name, index("i")) for o in inputs]
    values = [op(f, *loads[: ARITIES.get(f, 2)]) for f in functions]
    outputs = [ir.Operand(f"y{n}", v.type.dtype, True) for n, v in enumerate(values)]
    stores = [ir.Store(o.name, index("i"), v) for o, v in zip(outputs, values)]
    return kernel([*inputs, *outputs], [loop("i", START, STOP, *stores, step=lanes)])


COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
ELEMENTS = [int8, int32, int64, uint16, float32, float64]


@pytest.mark.sampled
@needs_compiler
@pytest.mark.parametrize("lanes", [8, 64])
@pytest.mark.parametrize("dtype", ELEMENTS, ids=str)
def test_vectors_wider_than_a_register(dtype: DType, lanes: int) -> None:
    """Comparisons, a choice by one, and conversions to all types are those of the evaluator."""
    odd = numpy.array([0, 1, 2, 3, 99, 127, 100, 7] if dtype.kind == "uint"
                      else [0, -1, 1, 99, -100, 126, -128, 7])  # fmt: skip
    x, y = (numpy.resize(part, 192).astype(dtype.numpy) for part in (odd, odd[[3, 1, 0, 6, 5]]))
    a, b = (ir.Load(ir.Type(dtype, lanes), name, index("i")) for name in "xy")
    values: list[ir.Value] = [op(name, a, b) for name in COMPARISONS]
    values.append(ir.Op(a.type, "select", (op("less", a, b), b, op("add", a, a))))
    values += [ir.Convert(ir.Type(each, lanes), a) for each in (*ELEMENTS, boolean)]
    outputs = [ir.Operand(f"y{n}", v.type.dtype, True) for n, v in enumerate(values)]
    stores = [ir.Store(o.name, index("i"), v) for o, v in zip(outputs, values)]
    operands = [ir.Operand("x", dtype), ir.Operand("y", dtype), *outputs]
    made = kernel(operands, [loop("i", START, STOP, *stores, step=lanes)])
    got, want = ([numpy.zeros(192, o.dtype.numpy) for o in outputs] for _ in range(2))
    launch(made, [x, y, *got], [], 0, 192)
    evaluator.run(made, [x, y, *want], [], 0, 192)
    for value, ours, right in zip(values, got, want):
        numpy.testing.assert_array_equal(ours, right, err_msg=str(value))


@pytest.mark.parametrize("have", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32"])
def test_conversions_have_steps_that_gcc_vectorises(have: str) -> None:
    for wanted in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"):
        for lanes in (8, 64):
            form, last = Form(have, lanes), Form(wanted, lanes)
            for each in (*steps(form, last), last):
                ratio = max(each.bits, form.bits) / min(each.bits, form.bits)
                is_of_floats = "f" in (each.kind, form.kind)
                assert min(each.bits, form.bits) >= 32 if is_of_floats else ratio <= 2
                form = each
            assert form == last
    assert steps(Form("u8", 8), Form("i32", 8)) == [Form("u16", 8)]  # no sign of a byte is copied


@needs_compiler
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    ("dtype", "functions"),
    [(float32, FLOATS), (float64, FLOATS), (int8, INTEGERS), (int64, INTEGERS), (uint16, INTEGERS)],
    ids=str,
)
def test_functions_at_odd_values(dtype: DType, functions: list[str], lanes: int) -> None:
    odd = [0, 1, 2, 3, 5, 63, 64, 127]
    if dtype.is_float:
        odd = [0.0, -0.0, 1.5, -2.5, numpy.inf, -numpy.inf, numpy.nan, 1e-40]
    elif dtype.kind == "int":
        odd = [0, -1, 1, 7, 64, *dtype.range, -7]
    columns = numpy.array([(a, b, c) for a in odd for b in odd for c in odd[:2]]).T
    arrays = [numpy.ascontiguousarray(column).astype(dtype.numpy) for column in columns]
    made = applied(functions, dtype, lanes)
    count = len(arrays[0])
    got, want = (
        [numpy.zeros(count, o.dtype.numpy) for o in made.operands if o.written] for _ in range(2)
    )
    launch(made, [*arrays, *got], [], 0, count)
    evaluator.run(made, [*arrays, *want], [], 0, count)
    for function, ours, right in zip(functions, got, want):
        if function == "exp":
            numpy.testing.assert_allclose(ours, right, rtol=1e-6)
        else:
            numpy.testing.assert_array_equal(ours, right, err_msg=function)


@pytest.mark.sampled(most=2)
@needs_compiler
@pytest.mark.parametrize(("dtype", "lanes"), [(float64, 4), (int32, 8), (int64, 1)], ids=str)
def test_a_random_program(dtype: DType, lanes: int) -> None:
    made = Program(7, dtype, lanes).kernel()
    values = numpy.random.default_rng(lanes).integers(-9, 9, LENGTH).astype(dtype.numpy)
    for n in (0, 1, 7):
        got, want = (numpy.zeros(LENGTH, dtype.numpy) for _ in range(2))
        evaluator.run(made, [values, want], [n])
        launch(made, [values, got], [n])
        numpy.testing.assert_array_equal(got, want, err_msg=f"n {n}")


@needs_compiler
def test_data_wraps_and_sizes_are_plain() -> None:
    """int64 data is never added in signed arithmetic; indices read as indices."""
    total = op("add", ir.Load(ir.INDEX, "x", index("i")), number(2**62))
    square = op("mul", ir.Var(ir.INDEX, "t"), ir.Var(ir.INDEX, "t"))
    place = op("add", op("mul", index("i"), index("n")), number(1))
    body = loop("i", START, STOP, ir.Let("t", total), ir.Store("y", place, square))
    operands = [ir.Operand("x", int64), ir.Operand("y", int64, True)]
    made = kernel(operands, [body], ["n"])
    text = render(made, this_machine())
    assert "y[i * n + 1] = mul_i64(t, t)" in text
    x, y = numpy.array([2**62, -(2**63), 5]), numpy.zeros(6, numpy.int64)
    launch(made, [x, y], [2], 0, 3)
    with numpy.errstate(over="ignore"):
        numpy.testing.assert_array_equal(y[1::2], (x + 2**62) ** 2)


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (float32, 0.1, "0.1f"), (float32, -0.0, "-0.0f"), (float64, 1e300, "1e+300"),
        (float32, -numpy.inf, "-__builtin_inff()"), (float64, numpy.nan, '__builtin_nan("")'),
        (int32, -(2**31), "(-2147483647 - 1)"), (int64, 2**31, "2147483648ll"),
        (int64, -(2**63), "(-9223372036854775807ll - 1)"), (boolean, True, "1"), (int8, 200, "-56"),
    ],
)  # fmt: skip
def test_numbers(dtype: DType, value: float, text: str) -> None:
    assert literal(dtype, value, C11.literals) == text


def test_names_are_identifiers_that_hide_nothing() -> None:
    names = ("x", "int", "f32x8", "a.b", "7", "add_i32", "half", "this")
    assert [identifier(name) for name in names] == [
        "x", "int_", "f32x8_", "a_b", "_7", "add_i32_", "half_", "this_",
    ]  # fmt: skip
    scope = Scope()
    assert [scope.declare("a.b"), scope.declare("a_b")] == ["a_b", "a_b_2"]
    with scope.block():
        assert scope.declare("a_b") == "a_b_3"
    assert scope.get("a_b") == "a_b_2"


def test_the_text_depends_on_the_kernel_and_the_processor_alone() -> None:
    made = elementwise(["tanh", "exp"], float32, 8, 1)
    assert render(made, this_machine()) == render(made, this_machine())


def test_a_missing_compiler_is_named() -> None:
    with settings.override(c_compiler="/nowhere/cc -x"), pytest.raises(OptionError) as caught:
        compiler()
    assert "no C compiler '/nowhere/cc -x'" in str(caught.value)
    assert "ANYDIM_C_COMPILER" in str(caught.value)


@needs_compiler
@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True), (False, False)])
def test_a_function_elsewhere_is_called_with_and_without_its_result(used: tuple[bool, ...]) -> None:
    """Its declaration has the result, whatever the order of the calls."""
    body = Body()
    for each in used:
        with body.when(parameter("n") > 0):
            if each:
                body.give(body.ask("other", 1))
            else:
                body.call("other", 1)
    body.give(0)
    library = ir.Library("calls", (body.function("calling", ("n",), public=True),))
    code = target("c", "native")
    assert code.compile(code.sources([library], code.processor)).code.keys() == {"calls"}
    declared = "i64 other(i64)" if any(used) else "void other(i64)"
    assert declared in render(library, code.processor)

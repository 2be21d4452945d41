"""Promise: every function and conversion becomes what a target has, with the same meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy
import pytest

from anydim.base.dtypes import DTYPES, DType, bfloat16, boolean, float16, float32, float64, int32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.evaluator import convert, run
from anydim.compiler.targets.functions.expansions import FLOATING, INTEGER
from anydim.compiler.targets.functions.legalise import legalise
from anydim.compiler.targets.functions.primitives import Primitives
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.run import launch
from anydim.lang.functions import FUNCTIONS
from tests.unit.compiler.targets.programs import START, STOP, elementwise, index, kernel, loop, op

POOR = Primitives()
RICH = Primitives(float16=True, functions=frozenset(("copysign",)))
LANES = 4
HERE = this_machine()
FLOATS = (float64, float32, float16, bfloat16)
NARROW = [dtype for dtype in DTYPES.values() if dtype.format is not None]
# Units in the last place between the evaluator and compiled code: float64 products and sums are
# fused in extended precision there, which rounds twice.
DOUBLE_ROUNDING = {"tan": 4, "sinh": 4, "erf": 4}


fused = pytest.mark.skipif(
    HERE.architecture == "x86_64" and "fma" not in HERE.has, reason="the machine rounds twice"
)


def nodes(tree: Any) -> Iterator[Any]:
    """Every record of loop IR in a tree."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from nodes(part)
    elif is_dataclass(tree) and not isinstance(tree, ir.Type):
        yield tree
        for field in fields(tree):
            yield from nodes(getattr(tree, field.name))


def assert_primitive(functions: tuple[ir.Function, ...], target: Primitives) -> None:
    for node in nodes(functions):
        if isinstance(node, ir.Op):
            assert target.computes(node.function, node.arguments[-1].type.dtype), node
        if isinstance(node, ir.Convert):
            assert target.converts(node.argument.type.dtype, node.type.dtype, node.fits), node


def legal(code: ir.Kernel, target: Primitives) -> ir.Kernel:
    made = replace(code, functions=legalise(code.functions, target))
    assert_primitive(made.functions, target)
    return made


def special(dtype: DType) -> numpy.ndarray:
    values = [0.0, -0.0, 0.5, -0.5, 1, -1, 2, -2, 2.5, 3, -3, 0.1, 7.25, -20, 88.5, 1e-5, 300, -90]
    values += [numpy.inf, -numpy.inf, numpy.nan, 1e-40]
    return numpy.array(values, numpy.float64).astype(dtype.numpy)


def padded(values: numpy.ndarray) -> numpy.ndarray:
    return numpy.resize(values, -(-len(values) // LANES) * LANES)


def outputs(code: ir.Kernel, count: int) -> list[numpy.ndarray]:
    return [numpy.zeros(count, o.dtype.numpy) for o in code.operands if o.written]


def same(got: numpy.ndarray, want: numpy.ndarray) -> numpy.ndarray:
    return (got == want) | ((got != got) & (want != want))


@pytest.mark.sampled(most=2)
@fused
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("arity", [1, 2])
def test_expanded_functions_evaluate_to_what_is_compiled(dtype: DType, arity: int) -> None:
    """For a machine that has nothing, in the evaluator, as for LLVM, compiled."""
    names = [n for n in FLOATING if n in FUNCTIONS and FUNCTIONS[n].arity == arity]
    values = special(dtype)
    inputs = [values]
    if arity == 2:
        inputs = [a.ravel() for a in numpy.meshgrid(values, values)]
    inputs = [padded(x) for x in inputs]
    count = len(inputs[0])
    code = elementwise(names, dtype, LANES, arity)
    native, evaluated = outputs(code, count), outputs(code, count)
    launch(code, [*inputs, *native], [], 0, count)
    run(legal(code, POOR), [*inputs, *evaluated], [], 0, count)
    for name, want, got in zip(names, native, evaluated):
        close = same(got, want)
        if want.dtype == float64.numpy:
            with numpy.errstate(all="ignore"):
                allowed = DOUBLE_ROUNDING.get(name, 2) * numpy.spacing(numpy.abs(want))
                close |= numpy.abs(got - want) <= allowed
        wrong = [(*(x[i] for x in inputs), got[i], want[i]) for i in numpy.flatnonzero(~close)]
        assert not wrong, (name, wrong[:5])


@fused
def test_evaluated_fma_is_rounded_once() -> None:
    """Ties and near ties too: c is about an ulp, or half of one, of a * b."""
    rng = numpy.random.default_rng(3)
    a, b = rng.integers(-(2**24), 2**24, (2, 4096)).astype(numpy.float32)
    c = numpy.spacing(a * b) * rng.choice([0.5, -0.5, 1, -1.5, 2.0**-30, -(2.0**25)], 4096)
    code = elementwise(["fma"], float32, 64, 3)
    native, evaluated = numpy.zeros_like(a), numpy.zeros_like(a)
    inputs = [a, b, c.astype(numpy.float32)]
    launch(code, [*inputs, native], [], 0, len(a))
    run(code, [*inputs, evaluated], [], 0, len(a))
    numpy.testing.assert_array_equal(evaluated, native)


@fused
def test_evaluated_float32_has_the_bits_of_compiled_code() -> None:
    """Fused operations are rounded once in both."""
    names = [n for n in FLOATING if n in FUNCTIONS and FUNCTIONS[n].arity == 1]
    values = numpy.random.default_rng(11).normal(0, 5, 2048).astype(numpy.float32)
    code = elementwise(names, float32, 64, 1)
    native, evaluated = outputs(code, len(values)), outputs(code, len(values))
    launch(code, [values, *native], [], 0, len(values))
    run(legal(code, RICH), [values, *evaluated], [], 0, len(values))
    for name, want, got in zip(names, native, evaluated):
        assert same(got, want).all(), (name, values[~same(got, want)][:5])


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_integer], ids=str)
def test_expanded_integer_functions(dtype: DType) -> None:
    if dtype.stored:
        return
    low, high = dtype.range
    values = numpy.array([0, 1, 2, 3, 5, 31, high, high - 1, low, low + 1], dtype.numpy)
    left, right = (padded(a.ravel()) for a in numpy.meshgrid(values, values))
    code = elementwise(["pow"], dtype, LANES, 2)
    native, evaluated = outputs(code, len(left)), outputs(code, len(left))
    launch(code, [left, right, *native], [], 0, len(left))
    run(legal(code, POOR), [left, right, *evaluated], [], 0, len(left))
    numpy.testing.assert_array_equal(evaluated[0], native[0])


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("have", [*FLOATS, *NARROW, *map(DTYPES.get, ("int4", "uint2", "int64"))],
                         ids=str)  # fmt: skip
def test_expanded_conversions_evaluate_to_numpy_s(have: DType) -> None:
    """To every type, for a machine that has no float16 either."""
    if have.bits <= 8:
        values = padded(numpy.arange(1 << have.bits, dtype=numpy.uint8).view(have.numpy))
    elif have.is_float:
        big = numpy.array([300, -300, 7e4, 3e9, -3e9, 1e19, 2e19, 65504, 65520, 6e-8, 3e-8])
        with numpy.errstate(all="ignore"):
            values = padded(numpy.concatenate([special(have), big.astype(have.numpy)]))
    else:
        values = padded(numpy.array([0, 1, -1, 7, -8, 255, 2**40, -(2**62)], have.numpy))
    wanted = list(DTYPES.values())
    load = ir.Load(ir.Type(have, LANES), "x", index("i"))
    stores = [ir.Store(f"to_{w}", index("i"), ir.Convert(ir.Type(w, LANES), load)) for w in wanted]
    operands = [ir.Operand("x", have), *(ir.Operand(f"to_{w}", w, True) for w in wanted)]
    code = kernel(operands, [loop("i", START, STOP, *stores, step=LANES)])
    got = outputs(code, len(values))
    run(legal(code, POOR), [values, *got], [], 0, len(values))
    with numpy.errstate(all="ignore"):
        for dtype, result in zip(wanted, got):
            single = values.astype(numpy.float32) if dtype == float16 else values
            assert same(result, convert(single, dtype)).all(), dtype


def test_every_float16_without_a_machine_that_has_it() -> None:
    values = numpy.arange(65536, dtype=numpy.uint16).view(numpy.float16)
    load = ir.Load(ir.Type(float16, 64), "x", index("i"))
    double = ir.Op(load.type, "add", (load, load))
    operands = [ir.Operand("x", float16), ir.Operand("y", float16, True)]
    code = kernel(operands, [loop("i", START, STOP, ir.Store("y", index("i"), double), step=64)])
    got = numpy.zeros_like(values)
    run(legal(code, POOR), [values, got], [], 0, len(values))
    with numpy.errstate(all="ignore"):
        want = values + values
    assert same(got, want).all()
    assert (numpy.signbit(got) == numpy.signbit(values)).all()


@pytest.mark.sampled(most=20)
@pytest.mark.parametrize("target", [POOR, RICH], ids=["poor", "rich"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_nothing_else_than_primitives_is_left(dtype: DType, target: Primitives) -> None:
    rows = [row for row in FUNCTIONS.values() if not row.internal and row.name != "select"]
    rows = [row for row in rows if row.result not in DTYPES and row.result != "bits"]
    if dtype.is_float:
        rows = [r for r in rows if not r.name.startswith(("bit_", "shift_"))]
    elif dtype == boolean:
        rows = [r for r in rows if r.name in ("and", "or", "xor", "not", "add", "equal", "isnan")]
    else:
        rows = [r for r in rows if r.result != "float" or r.name in INTEGER]
    for lanes in (1, 8):
        for row in rows:
            legal(elementwise([row.name], dtype, lanes, row.arity), target)


def test_a_statement_that_needs_nothing_stays_the_same_object() -> None:
    code = elementwise(["add", "max"], float32, 8, 2)
    assert legalise(code.functions, POOR)[0] is code.functions[0]


def test_what_is_read_before_is_named_before() -> None:
    """x + exp(y): x is read first, as without the expansion."""
    kind = ir.Type(float32, 8)
    x, y = (ir.Load(kind, name, index("i")) for name in "xy")
    store = ir.Store("z", index("i"), op("add", x, op("exp", y)))
    body = legalise([ir.Function("f", (), (store,))], RICH)[0].body
    first, second, *_ = body
    assert isinstance(first, ir.Let) and isinstance(second, ir.Let)
    assert first.value is x and second.value is y
    last = body[-1]
    assert isinstance(last, ir.Store) and isinstance(last.value, ir.Op)
    assert last.value.arguments[0] == ir.Var(kind, first.name)


def test_a_shared_value_is_expanded_once() -> None:
    kind = ir.Type(float32, 8)
    e = op("exp", ir.Load(kind, "x", index("i")))

    def steps(value: ir.Value) -> int:
        store = ir.Store("z", index("i"), value)
        return len(legalise([ir.Function("f", (), (store,))], RICH)[0].body)

    assert steps(op("mul", e, e)) == steps(e)


def test_a_condition_that_takes_steps_is_looked_at_before_every_iteration() -> None:
    """while exp(x) < 20: x += 1"""
    x, one = ir.Get(ir.Type(float32), "r"), ir.Const(ir.Type(float32), 1.0)
    limit = ir.Const(ir.Type(float32), 20.0)
    body = [
        ir.Declare("r", ir.Load(ir.Type(float32), "x", ir.Const(ir.INDEX, 0))),
        ir.While(op("less", op("exp", x), limit), (ir.Assign("r", op("add", x, one)),)),
        ir.Store("x", ir.Const(ir.INDEX, 0), x),
    ]
    code = kernel([ir.Operand("x", float32, True)], body)
    for runner, made in ((run, legal(code, POOR)), (launch, code)):
        for start, end in ((0.25, 3.25), (3.0, 3.0), (2.9, 3.9)):
            data = numpy.array([start], numpy.float32)
            runner(made, [data], [], 0, 1)
            assert data[0] == numpy.float32(end)


def test_facts_of_registers_end_where_they_are_assigned() -> None:
    """A power whose exponent is 2 before the loop, and not after it."""
    kind = ir.Type(float64)
    power = op("pow", ir.Get(kind, "x"), ir.Get(kind, "e"))
    body = [
        ir.Declare("x", ir.Load(kind, "y", ir.Const(ir.INDEX, 0))),
        ir.Declare("e", ir.Const(kind, 2.0)),
        loop("i", START, STOP,
             ir.Assign("x", power), ir.Assign("e", ir.Const(kind, 3.0))),
        ir.Store("y", ir.Const(ir.INDEX, 0), ir.Get(kind, "x")),
    ]  # fmt: skip
    code = kernel([ir.Operand("y", float64, True)], body)
    for runner in (run, launch):
        data = numpy.array([3.0])
        runner(legal(code, POOR) if runner is run else code, [data], [], 0, 2)
        assert abs(data[0] - 729) < 1e-9


def test_what_nothing_computes_is_our_error() -> None:
    with pytest.raises(InternalError, match="no rule for 'exp' of int32"):
        legalise(elementwise(["exp"], int32, 4, 1).functions, POOR)

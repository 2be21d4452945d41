"""Promise: compiled scalar functions mean what lang/functions.py says, for every element type."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import (
    DTYPES,
    DType,
    boolean,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.functions import convert
from anydim.compiler.targets.run import launch
from anydim.lang.functions import FUNCTIONS
from tests.unit.compiler.targets.programs import START, STOP, apply, index, kernel, loop, op

pytestmark = pytest.mark.usefixtures("kernel_target")

INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = (float16, float32, float64)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
BINARY_INTEGER = (
    "add", "sub", "mul", "div", "floordiv", "mod", "fmod", "min", "max", "bit_and", "bit_or",
    "bit_xor", "shift_left", "shift_right", *COMPARISONS,
)  # fmt: skip
UNARY_INTEGER = ("abs", "sign", "bit_not", "isnan", "isinf")
BINARY_FLOAT = ("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "min", "max", *COMPARISONS)
UNARY_FLOAT = (
    "neg", "abs", "sign", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf",
)  # fmt: skip


def integers(dtype: DType) -> numpy.ndarray:
    limits = numpy.iinfo(dtype.numpy)
    interesting = [0, 1, 2, 3, 7, 8, 63, 64, limits.max, limits.max - 1, limits.min]
    if limits.min:
        interesting += [-1, -2, -3, -7, limits.min + 1]
    return numpy.array(interesting, dtype.numpy)


def floats(dtype: DType) -> numpy.ndarray:
    values = [0.0, -0.0, 0.5, -0.5, 1, -1, 1.5, 2.5, -2.5, 3, 0.1, 7.25, -1e3, 6e4, 1e-5]
    return numpy.array([*values, numpy.inf, -numpy.inf, numpy.nan], dtype.numpy)


def pairs(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    left, right = numpy.meshgrid(values, values)
    return left.ravel(), right.ravel()


def reference(function: str, *arguments: numpy.ndarray) -> numpy.ndarray:
    half = arguments[-1].dtype == numpy.float16
    if half:
        arguments = tuple(a.astype(numpy.float32) for a in arguments)
    with numpy.errstate(all="ignore"):
        result = numpy.asarray(FUNCTIONS[function].numpy(*arguments))
        return result.astype(numpy.float16) if half and result.dtype.kind == "f" else result


def assert_same(name: str, got: numpy.ndarray, want: numpy.ndarray, *inputs: numpy.ndarray) -> None:
    same = (got == want) | ((got != got) & (want != want))
    if not same.all():
        at = int(numpy.argmin(same))
        arguments = [x[at] for x in inputs]
        raise AssertionError(f"{name}{arguments} is {got[at]}, expected {want[at]}")


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_functions(dtype: DType, lanes: int) -> None:
    left, right = pairs(integers(dtype))
    for name, got in zip(BINARY_INTEGER, apply(BINARY_INTEGER, dtype, left, right, lanes=lanes)):
        assert_same(name, got, reference(name, left, right), left, right)
    values = integers(dtype)
    for name, got in zip(UNARY_INTEGER, apply(UNARY_INTEGER, dtype, values, lanes=lanes)):
        assert_same(name, got, reference(name, values), values)


@pytest.mark.parametrize("dtype", (int8, uint8, int16, uint16, int32, uint32), ids=str)
def test_quotients_by_floats_are_exact(dtype: DType) -> None:
    """Of bytes all, of others those that are next to a whole quotient."""
    limits, random = numpy.iinfo(dtype.numpy), numpy.random.default_rng(3)
    if dtype.bytes == 1:
        left, right = pairs(numpy.arange(limits.min, limits.max + 1).astype(dtype.numpy))
    else:
        right = random.integers(1, 2 ** random.integers(1, dtype.bits - 1, 20000))
        whole = random.integers(limits.min // right + 1, limits.max // right) * right
        left = (whole + random.integers(-1, 2, 20000)).astype(dtype.numpy)
        right = right.astype(dtype.numpy)
    for name, got in zip(("div", "mod"), apply(("div", "mod"), dtype, left, right, lanes=16)):
        assert_same(name, got, reference(name, left, right), left, right)


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", (int8, int32, int64, uint8, uint64), ids=str)
def test_a_division_by_the_numbers_of_lanes_never_traps(dtype: DType, lanes: int) -> None:
    """The first of them is 0: a divisor that is written out is no number that may be divided by."""
    kind, names = ir.Type(dtype, lanes), ("div", "fmod", "floordiv", "mod")
    loaded = ir.Load(kind, "x", index("i"))
    numbers = [ir.Iota(kind)] + [op("sub", ir.Iota(kind), ir.Const(kind, n)) for n in (1, 2, 3)]
    stores = [
        ir.Store(f"y{n}", index("i"), op(name, loaded, numbers[n])) for n, name in enumerate(names)
    ]
    outputs = [ir.Operand(f"y{n}", dtype, True) for n in range(4)]
    built = kernel(
        [ir.Operand("x", dtype), *outputs], [loop("i", START, STOP, *stores, step=lanes)]
    )
    values = numpy.tile(integers(dtype), lanes)
    made = [numpy.empty_like(values) for _ in names]
    launch(built, [values, *made], [], 0, len(values))
    for less, (name, got) in enumerate(zip(names, made)):
        right = (numpy.arange(len(values)) % lanes - less).astype(dtype.numpy)
        assert_same(name, got, reference(name, values, right), values, right)


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_functions(dtype: DType, lanes: int) -> None:
    left, right = pairs(floats(dtype))
    for name, got in zip(BINARY_FLOAT, apply(BINARY_FLOAT, dtype, left, right, lanes=lanes)):
        assert_same(name, got, reference(name, left, right), left, right)
    values = floats(dtype)
    for name, got in zip(UNARY_FLOAT, apply(UNARY_FLOAT, dtype, values, lanes=lanes)):
        if name == "rsqrt":
            with numpy.errstate(all="ignore"):
                numpy.testing.assert_allclose(got, reference(name, values), rtol=2e-3)
        else:
            assert_same(name, got, reference(name, values), values)


@pytest.mark.parametrize("lanes", [1, 8])
def test_boolean_functions(lanes: int) -> None:
    left = numpy.array([False, False, True, True])
    right = numpy.array([False, True, False, True])
    names = ("and", "or", "xor", "add", "mul", "min", "max", *COMPARISONS)
    for name, got in zip(names, apply(names, boolean, left, right, lanes=lanes)):
        assert_same(name, got, reference(name, left, right), left, right)
    (opposite,) = apply(("not",), boolean, left, lanes=lanes)
    assert_same("not", opposite, ~left, left)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_select_takes_a_flag_per_lane(dtype: DType) -> None:
    flags = numpy.array([True, False, False, True, True])
    left = numpy.arange(5).astype(dtype.numpy)
    right = numpy.array([1, 0, 1, 0, 1]).astype(dtype.numpy)
    (got,) = apply(("select",), dtype, flags, left, right)
    assert_same("select", got, numpy.where(flags, left, right))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers(dtype: DType) -> None:
    left, right = pairs(integers(dtype)[:7])
    (got,) = apply(("pow",), dtype, left, right)
    assert_same("pow", got, numpy.power(left, right), left, right)
    if dtype.kind == "int":
        base = numpy.array([1, -1, -1, 2, 0], dtype.numpy)
        power = numpy.array([-3, -2, -3, -1, -1], dtype.numpy)
        (got,) = apply(("pow",), dtype, base, power)
        assert got.tolist() == [1, 1, -1, 0, 0]


def test_remainders_of_far_apart_floats_are_exact() -> None:
    rng = numpy.random.default_rng(1)
    for dtype, span in ((float32, 36), (float64, 300)):
        sizes = 10.0 ** rng.uniform(-span, span, (2, 300))
        left, right = (numpy.where(rng.random(300) < 0.5, s, -s).astype(dtype.numpy) for s in sizes)
        for name, got in zip(("fmod", "mod"), apply(("fmod", "mod"), dtype, left, right)):
            assert_same(name, got, reference(name, left, right), left, right)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_the_number_after_another(dtype: DType, lanes: int) -> None:
    about = numpy.finfo(dtype.numpy)
    ends = [about.max, -about.max, about.tiny, about.smallest_subnormal, -about.smallest_subnormal]
    left, right = pairs(numpy.concatenate([floats(dtype), numpy.array(ends, dtype.numpy)]))
    (got,) = apply(("nextafter",), dtype, left, right, lanes=lanes)
    with numpy.errstate(over="ignore"):
        want = numpy.nextafter(left, right)
    assert_same("nextafter", got, want, left, right)
    zero = want == 0
    assert numpy.array_equal(numpy.signbit(got[zero]), numpy.signbit(want[zero]))


def test_fast_extremes_agree_where_there_is_no_nan() -> None:
    values = floats(float32)
    left, right = pairs(values[values == values])
    low, high = apply(("fast_min", "fast_max"), float32, left, right)
    assert_same("fast_min", low, numpy.minimum(left, right))
    assert_same("fast_max", high, numpy.maximum(left, right))


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constant_exponents(dtype: DType, exponent: float) -> None:
    kind = ir.Type(dtype, 4)
    power = ir.Op(kind, "pow", (ir.Load(kind, "x", index("i")), ir.Const(kind, exponent)))
    body = loop("i", START, STOP, ir.Store("y", index("i"), power), step=4)
    built = kernel([ir.Operand("x", dtype), ir.Operand("y", dtype, True)], [body])
    values = numpy.array(
        [0, 1, 2, 0.25, 9, 100, numpy.inf, numpy.nan, -numpy.inf, 0.1, 3, 5], dtype.numpy
    )
    got = numpy.empty_like(values)
    launch(built, [values, got], [], 0, len(values))
    with numpy.errstate(all="ignore"):
        want = numpy.power(values, dtype.numpy.type(exponent))
    if exponent == 0.5:
        want[values == -numpy.inf] = numpy.inf  # as C99's pow; numpy takes the root there
    numpy.testing.assert_allclose(got, want, rtol=2 * float(numpy.finfo(dtype.numpy).eps))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("have", DTYPES.values(), ids=str)
def test_conversions(have: DType, lanes: int) -> None:
    """To every other type: numpy's astype, saturating from float to integer."""
    values = numpy.array([False, True, True])
    if have.is_float and not have.stored:
        big = [300, -300, 7e4, -7e4, 3e9, -3e9, 1e19, -1e19, 2e19, numpy.inf, -numpy.inf]
        with numpy.errstate(all="ignore"):
            values = numpy.array([0.5, -0.5, 1.99, -1.99, numpy.nan, *big], have.numpy)
    if have.is_integer and not have.stored:
        values = integers(have)
    if have.stored:
        values = numpy.arange(1 << have.bits, dtype=numpy.uint8).view(have.numpy)
    count = -(-len(values) // lanes) * lanes
    values = numpy.resize(values, count)
    load = ir.Load(ir.Type(have, lanes), "x", index("i"))
    wanted = list(DTYPES.values())
    stores = [ir.Store(f"to_{w}", index("i"), ir.Convert(ir.Type(w, lanes), load)) for w in wanted]
    operands = [ir.Operand("x", have), *(ir.Operand(f"to_{w}", w, True) for w in wanted)]
    built = kernel(operands, [loop("i", START, STOP, *stores, step=lanes)])
    outputs = [numpy.empty(count, w.numpy) for w in wanted]
    launch(built, [values, *outputs], [], 0, count)
    with numpy.errstate(all="ignore"):
        for want, got in zip(wanted, outputs):
            assert_same(f"{have} to {want}", got, convert(values, want), values)

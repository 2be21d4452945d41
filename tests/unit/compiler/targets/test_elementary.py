"""Promise: the largest error of each elementary function, against extended precision."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy
import pytest

from anydim.base.dtypes import DType, float16, float32, float64
from anydim.compiler.kernels import ir
from anydim.compiler.targets.run import launch
from tests.unit.compiler.targets.programs import START, STOP, apply, index, kernel, loop, op

pytestmark = pytest.mark.usefixtures("kernel_target")

# Largest error in units of the last place of (float32, float64), measured, rounded up.
ACCURACY = {
    "exp": (1, 1), "expm1": (2, 2), "log": (1, 1), "log1p": (1, 2), "tanh": (5, 3),
    "sigmoid": (3, 3), "erf": (6, 12), "sin": (1, 3), "cos": (1, 3), "tan": (1, 4),
    "asin": (2, 3), "acos": (2, 2), "atan": (3, 2), "sinh": (1, 5), "cosh": (1, 3),
    "asinh": (1, 2), "acosh": (1, 3), "atanh": (1, 3), "sqrt": (1, 1), "rsqrt": (2, 2),
}  # fmt: skip
REFERENCE = {
    "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
    "erf": lambda x: numpy.vectorize(math.erf, otypes=[float])(x.astype(float)),
    "asin": numpy.arcsin, "acos": numpy.arccos, "atan": numpy.arctan, "asinh": numpy.arcsinh,
    "acosh": numpy.arccosh, "atanh": numpy.arctanh, "rsqrt": lambda x: 1 / numpy.sqrt(x),
}  # fmt: skip
RNG = numpy.random.default_rng(7)
COUNT = 4000


def both_signs(limit: float) -> numpy.ndarray:
    spread = numpy.exp(RNG.uniform(-30, math.log(limit), COUNT)) * RNG.choice([-1, 1], COUNT)
    return numpy.concatenate([RNG.uniform(-limit, limit, COUNT), spread])


def angles() -> numpy.ndarray:
    """Of every size, near multiples of pi/2 too."""
    sizes = numpy.exp2(RNG.uniform(0, 127, COUNT)) * RNG.choice([-1, 1], COUNT)
    edge = RNG.uniform(2.0**20 - 2000, 2.0**20 + 2000, 500)
    multiples = RNG.integers(1, 600_000, 500) * (numpy.pi / 2)
    return numpy.concatenate([both_signs(1e3), sizes, edge, multiples])


def positive(low: float, high: float) -> numpy.ndarray:
    return numpy.exp(RNG.uniform(math.log(low), math.log(high), 2 * COUNT))


DOMAIN = {
    "exp": numpy.concatenate([both_signs(86.5), RNG.uniform(-104, -86, 500)]),
    "expm1": both_signs(80), "log": positive(1e-37, 1e38),
    "log1p": numpy.concatenate([both_signs(0.99), positive(1, 1e30)]), "tanh": both_signs(30),
    "sigmoid": numpy.concatenate([both_signs(80), RNG.uniform(-104, -80, 500)]),
    "erf": both_signs(10), "sin": angles(), "cos": angles(),
    "tan": angles(), "asin": both_signs(1), "acos": both_signs(1),
    "atan": both_signs(1e5), "sinh": both_signs(80), "cosh": both_signs(80),
    "asinh": both_signs(1e30), "acosh": 1 + positive(1e-10, 1e30), "atanh": both_signs(0.9999),
    "sqrt": positive(1e-30, 1e30), "rsqrt": positive(1e-30, 1e30),
}  # fmt: skip


def reference(name: str, values: numpy.ndarray) -> numpy.ndarray:
    function = REFERENCE.get(name) or getattr(numpy, name)
    with numpy.errstate(all="ignore"):
        return numpy.asarray(function(values))


@pytest.mark.parametrize("column,dtype", [(0, float32), (1, float64)], ids=str)
@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(name: str, column: int, dtype: DType) -> None:
    values = DOMAIN[name].astype(dtype.numpy)
    want = reference(name, values.astype(numpy.longdouble))
    (got,) = apply((name,), dtype, values, lanes=8)
    place = numpy.spacing(numpy.abs(want.astype(dtype.numpy))).astype(numpy.longdouble)
    error = numpy.abs(got.astype(numpy.longdouble) - want) / place
    worst = int(numpy.argmax(error))
    assert error[worst] <= ACCURACY[name][column], f"{name}({values[worst]}): {error[worst]} ulp"


def test_the_error_function_for_rounded_results() -> None:
    """Errors of it and of GELU's last factor as stated, from -6 to 6 and beyond."""
    special = [0.0, -0.0, 3.1, -3.1, 1e30, -numpy.inf, numpy.inf, 1e-40, numpy.nan]
    x = numpy.append(numpy.linspace(-6, 6, 100_001), special).astype(numpy.float32)
    (got,) = apply(("coarse_erf",), float32, x, lanes=8)
    error = numpy.abs(got - REFERENCE["erf"](x))[:-1]
    assert error.max() <= 1e-4 and numpy.isnan(got[-1])
    finite = numpy.abs(x[:-1]) <= 6
    assert (error * numpy.abs(x[:-1]))[finite].max() <= 3.7e-5
    assert error[numpy.abs(x[:-1]) > 3.2].max() <= 8e-6


def test_the_page_on_numerics_states_these_errors() -> None:
    page = Path(__file__).parents[4] / "docs" / "numerics.md"
    stated = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|$", page.read_text("utf-8"), re.M)
    assert {name: (int(a), int(b)) for name, a, b in stated} == ACCURACY


@pytest.mark.parametrize("functions", ["sigmoid tanh", "tanh sigmoid", "sigmoid sigmoid"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_products_of_gates(functions: str, dtype: DType) -> None:
    """As precise as both factors: 3 + 5 units in the last place, and a rounding."""
    first, second = functions.split()
    special = [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e-30, 88.7, -88.7, -87, 700, -709]
    x, y = RNG.permutation(both_signs(80)), RNG.permutation(both_signs(30))
    x = numpy.concatenate([numpy.repeat(special, len(special)), x]).astype(dtype.numpy)
    y = numpy.concatenate([special * len(special), y]).astype(dtype.numpy)
    kind = ir.Type(dtype, 8)
    factors = [op(f, ir.Load(kind, name, index("i"))) for f, name in ((first, "x"), (second, "y"))]
    store = ir.Store("z", index("i"), op("mul", *factors))
    operands = [ir.Operand("x", dtype), ir.Operand("y", dtype), ir.Operand("z", dtype, True)]
    count = len(x) // 8 * 8
    z = numpy.empty(count, dtype.numpy)
    built = kernel(operands, [loop("i", START, STOP, store, step=8)])
    launch(built, [x[:count], y[:count], z], [], 0, count)
    wide = [reference(f, v.astype(numpy.longdouble)) for f, v in ((first, x), (second, y))]
    want = (wide[0] * wide[1])[:count]
    tiny = 40 * numpy.finfo(dtype.numpy).tiny  # below, factors are not normal numbers
    numpy.testing.assert_allclose(
        z, want.astype(dtype.numpy), rtol=9 * numpy.finfo(dtype.numpy).eps, atol=tiny
    )


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_special_values(dtype: DType, lanes: int) -> None:
    """Infinities, NaN, zeros of both signs, overflow and underflow."""
    special = [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1, -1, 0.5, 2, 1e-40, -1e-40]
    edges = [88.73, 88.72, -87, -88, -104, 709.7, 709.8, -709, -745, -746, 1000, -1000]
    values = numpy.array([*special, *edges], dtype.numpy)
    names = tuple(ACCURACY)
    for name, got in zip(names, apply(names, dtype, values, lanes=lanes)):
        want = reference(name, values.astype(numpy.float64))
        with numpy.errstate(all="ignore"):
            want = want.astype(dtype.numpy)
        smallest = 2e-38 if dtype == float32 else 1e-307
        numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=smallest, err_msg=name)


def test_bounded_functions_reach_their_bounds() -> None:
    """Else x * (1 + tanh(x)) would not vanish for large negative x."""
    values = numpy.array([9.5, 12, 88, 1e30, numpy.inf], numpy.float32)
    for got in apply(("tanh", "erf"), float32, numpy.concatenate([values, -values])):
        assert got.tolist() == [1.0] * 5 + [-1.0] * 5


def test_signs_of_zero_are_kept() -> None:
    zeros = numpy.array([0.0, -0.0], numpy.float32)
    names = ("tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "sqrt")
    for name, got in zip(names, apply(names, float32, zeros)):
        assert numpy.signbit(got).tolist() == [False, True], name


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_pow(dtype: DType) -> None:
    base = positive(1e-3, 1e3).astype(dtype.numpy)
    power = RNG.uniform(-10, 10, len(base)).astype(dtype.numpy)
    want = numpy.power(base.astype(numpy.longdouble), power.astype(numpy.longdouble))
    (got,) = apply(("pow",), dtype, base, power)
    allowed = 1 if dtype == float32 else 2 + 2 * numpy.abs(power * numpy.log(base))
    assert (numpy.abs(got - want) <= allowed * numpy.spacing(want.astype(dtype.numpy))).all()


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_pow_of_special_values(dtype: DType) -> None:
    values = numpy.array(
        [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1, -1, 0.5, 2, -2, 3, -3, 2.5, -2.5, 1e30,
         -1e30, -0.5], dtype.numpy,
    )  # fmt: skip
    base, power = (a.ravel() for a in numpy.meshgrid(values, values))
    with numpy.errstate(all="ignore"):
        want = numpy.power(base, power)
    (got,) = apply(("pow",), dtype, base, power)
    numpy.testing.assert_allclose(got, want, rtol=1e-5)
    kept = ~numpy.isnan(want)
    assert (numpy.signbit(got) == numpy.signbit(want))[kept].all()


def test_float16_is_computed_in_float32() -> None:
    values = numpy.linspace(-4, 4, 257).astype(numpy.float16)
    names = ("exp", "tanh", "erf", "sigmoid", "sin", "sinh")
    for name, got in zip(names, apply(names, float16, values, lanes=8)):
        want = reference(name, values.astype(numpy.float32)).astype(numpy.float16)
        numpy.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_beyond_float32(name: str) -> None:
    """To the largest float64, and the one that is nearest to a multiple of pi/2."""
    sizes = numpy.exp2(RNG.uniform(120, 1023.9, COUNT)) * RNG.choice([-1, 1], COUNT)
    nearest = [6381956970095103 * 2.0**797, numpy.finfo(float).max, 2.0**1023, 1e22]
    values = numpy.concatenate([sizes, nearest])
    want = reference(name, values.astype(numpy.longdouble))
    (got,) = apply((name,), float64, values, lanes=8)
    error = numpy.abs(got - want) / numpy.spacing(numpy.abs(want.astype(float)))
    assert error.max() <= ACCURACY[name][1]


def test_powers_of_e_that_are_subnormal() -> None:
    """Within one unit, and each like exp(x - maximum), which a softmax takes."""
    for dtype, low, zero in ((float32, -86.0, -104.0), (float64, -707.0, -745.2)):
        values = numpy.linspace(low, zero, 3000).astype(dtype.numpy)
        values = numpy.concatenate([values, [-1e30, -numpy.inf]]).astype(dtype.numpy)
        want = numpy.exp(values.astype(numpy.longdouble))
        for lanes in (1, 16):
            got, same = apply(("exp", "exp_nonpositive"), dtype, values, lanes=lanes)
            unit = numpy.spacing(want.astype(dtype.numpy))
            assert (numpy.abs(got - want) <= unit).all() and got[-1] == got[-2] == 0
            numpy.testing.assert_array_equal(got, same)


def test_powers_of_e_at_their_ends() -> None:
    """The last that is finite, infinity behind it, and NaN with whatever bits it has."""
    for dtype, last in ((float32, 88.72283), (float64, 709.782712893384)):
        end = numpy.array(last, dtype.numpy)
        values = numpy.concatenate([[end, numpy.nextafter(end, numpy.inf), numpy.inf, 1e30], [0.0]])
        nans = numpy.full(8, numpy.nan, dtype.numpy)
        nans.view(f"i{nans.itemsize}")[:] += numpy.arange(8)
        got, same = apply(
            ("exp", "exp_nonpositive"), dtype, numpy.append(values.astype(dtype.numpy), nans)
        )
        want = float(numpy.exp(end.astype(numpy.longdouble)))
        numpy.testing.assert_allclose(got[0], want, rtol=2 * numpy.finfo(dtype.numpy).eps)
        assert got[1:5].tolist() == [numpy.inf] * 3 + [1]
        assert numpy.isnan(got[5:]).all() and numpy.isnan(same[5:]).all()


def test_values_outside_a_domain() -> None:
    """As IEEE 754 and numpy have them."""
    large = numpy.array([-1e10, -1e30, -numpy.inf, 0.5, numpy.nan, 1.0, numpy.inf])
    for dtype in (float32, float64):
        (got,) = apply(("acosh",), dtype, large.astype(dtype.numpy))
        assert numpy.isnan(got[:5]).all() and got[5:].tolist() == [0, numpy.inf]
        (signs,) = apply(("sign",), dtype, numpy.array([-0.0, 0.0, -3, numpy.nan], dtype.numpy))
        assert signs[:3].tolist() == [0, 0, -1] and not numpy.signbit(signs[:2]).any()
        assert numpy.isnan(signs[3])
        halves = numpy.full(1, 0.5, dtype.numpy)
        (root,) = apply(("pow",), dtype, numpy.array([-numpy.inf], dtype.numpy), halves)
        assert root[0] == numpy.inf

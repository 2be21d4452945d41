"""Promise: conversions to and from narrow types are those of ml_dtypes, bit by bit.

Every bit pattern of a narrow type is widened. Every narrow number, every midpoint between two
and their float32 neighbours are narrowed, and random bit patterns beside them.
"""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import DTYPES, DType, bfloat16, convert_array, float16, float32, float64
from anydim.compiler.kernels import ir
from anydim.compiler.targets.run import launch
from anydim.lang.functions import unsigned_type
from tests.unit.compiler.targets.programs import START, STOP, apply, index, kernel, loop

pytestmark = pytest.mark.usefixtures("kernel_target")

NARROW = [dtype for dtype in DTYPES.values() if dtype.format is not None]
LANES = 16


def compiled(values: numpy.ndarray, have: DType, wanted: DType) -> numpy.ndarray:
    """The values converted by compiled code."""
    count = -(-len(values) // LANES) * LANES
    padded = numpy.zeros(count, values.dtype)
    padded[: len(values)] = values
    load = ir.Load(ir.Type(have, LANES), "x", index("i"))
    store = ir.Store("y", index("i"), ir.Convert(ir.Type(wanted, LANES), load))
    built = kernel(
        [ir.Operand("x", have), ir.Operand("y", wanted, True)],
        [loop("i", START, STOP, store, step=LANES)],
    )
    result = numpy.zeros(count, wanted.numpy)
    launch(built, [padded, result], [], 0, count)
    return result[: len(values)]


def patterns(dtype: DType) -> numpy.ndarray:
    """Every bit pattern."""
    bits = unsigned_type(dtype).numpy
    return numpy.arange(1 << min(dtype.bits, 16), dtype=numpy.int64).astype(bits).view(dtype.numpy)


def near(dtype: DType) -> numpy.ndarray:
    """float32 numbers where rounding to the type decides something, and random ones."""
    assert dtype.format is not None
    known = convert_array(patterns(dtype), float64.numpy)
    known = numpy.unique(known[numpy.isfinite(known)])
    middles = (known[1:] + known[:-1]) / 2
    step = abs(known[-1] - known[-2])
    beyond = known[-1] + step * numpy.array([0.25, 0.5, 0.75, 1.0, 4.0])
    with numpy.errstate(over="ignore"):
        exact = numpy.concatenate([known, middles, beyond, -beyond]).astype(numpy.float32)
    up, down = numpy.nextafter(exact, numpy.inf), numpy.nextafter(exact, -numpy.inf)
    bits = numpy.random.default_rng(7).integers(0, 1 << 32, 200_000, numpy.uint64)
    special = numpy.array([numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0], numpy.float32)
    random = bits.astype(numpy.uint32).view(numpy.float32)
    small = random[abs(random) < 1e30] % 16
    values = numpy.concatenate([exact, up, down, random, small, special])
    return values[comparable(values, dtype)]


def comparable(values: numpy.ndarray, wanted: DType) -> numpy.ndarray:
    """Where ml_dtypes rounds as it should: not subnormal numbers to powers of two."""
    assert wanted.format is not None
    singles = convert_array(values, numpy.dtype(numpy.float32))
    normal = abs(singles) >= 2.0**-126
    return wanted.format.sign | normal | (singles == 0) | numpy.isnan(singles)


def assert_same_bits(got: numpy.ndarray, want: numpy.ndarray, inputs: numpy.ndarray) -> None:
    bits = f"u{got.itemsize}"
    wrong = (got.view(bits) != want.view(bits)) & ~(numpy.isnan(got) & numpy.isnan(want))
    assert not wrong.any(), (inputs[wrong][:5], got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("wanted", [float32, float64, float16], ids=str)
@pytest.mark.parametrize("have", NARROW, ids=str)
def test_widening(have: DType, wanted: DType) -> None:
    values = patterns(have)
    with numpy.errstate(all="ignore"):
        assert_same_bits(
            compiled(values, have, wanted), convert_array(values, wanted.numpy), values
        )


@pytest.mark.parametrize("wanted", NARROW, ids=str)
def test_narrowing(wanted: DType) -> None:
    values = near(wanted)
    with numpy.errstate(all="ignore"):
        want = values.astype(wanted.numpy)
    assert_same_bits(compiled(values, float32, wanted), want, values)


@pytest.mark.parametrize("wanted", NARROW, ids=str)
@pytest.mark.parametrize("have", [float16, bfloat16], ids=str)
def test_narrowing_every_half(have: DType, wanted: DType) -> None:
    values = patterns(have)
    with numpy.errstate(all="ignore"):
        values = values[comparable(values, wanted)]
        want = convert_array(values, wanted.numpy)
        assert_same_bits(compiled(values, have, wanted), want, values)


@pytest.mark.parametrize("function", ["add", "sub", "mul", "div", "min", "max", "less", "equal"])
def test_bfloat16_rounds_after_each_operation(function: str) -> None:
    """Exact in float64, so the reference rounds once: beyond that, float32 is wide enough."""
    chance = numpy.random.default_rng(3)
    left, right = (
        chance.integers(0, 1 << 16, 50_000).astype(numpy.uint16).view(bfloat16.numpy)
        for _ in range(2)
    )
    (got,) = apply([function], bfloat16, left, right)
    with numpy.errstate(all="ignore"):
        a, b = (x.astype(numpy.float32) for x in (left, right))
        want = {
            "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "div": numpy.divide,
            "min": numpy.minimum, "max": numpy.maximum, "less": numpy.less, "equal": numpy.equal,
        }[function](a, b)  # fmt: skip
    if want.dtype == bool:
        numpy.testing.assert_array_equal(got, want)
    else:
        with numpy.errstate(all="ignore"):
            assert_same_bits(got, want.astype(bfloat16.numpy), left)

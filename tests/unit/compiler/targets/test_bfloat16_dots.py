"""Promise: sums of products of bfloat16 pairs have the same bits with and without an instruction.

The model is the order of vdpbf16ps: the upper halves first, one rounding for each product, and
zeros for subnormal numbers.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy
import pytest

from anydim.base.dtypes import float32, int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.run import launch
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop

SMALLEST = 2.0**-126
ZERO, ROW = ir.Const(ir.INDEX, 0), ir.Const(ir.INDEX, 18)
_HARD = (
    0.0, -0.0, 1.0, -1.0, 2.0**-126, -(2.0**-126), 2.0**-127, 2.0**-133, 2.0**127, -(2.0**127),
    2.0**-60, -(2.0**-66), 2.0**64, numpy.inf, -numpy.inf, numpy.nan, 1.0078125, 3.3895314e38,
)  # fmt: skip


def drawn(count: int, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Pairs of factors as words, and totals: random numbers of all sizes, and hard ones."""
    chance = numpy.random.default_rng(seed)
    exponents = chance.integers(-140, 128, (3, 2 * count)) * chance.integers(0, 2, (3, 1))
    near = chance.integers(-9, 9, (3, 2 * count))
    exponents = numpy.where(chance.random((3, 2 * count)) < 0.5, near, exponents)
    with numpy.errstate(all="ignore"):
        values = (chance.uniform(-2, 2, (3, 2 * count)) * 2.0**exponents).astype(numpy.float32)
    hard = chance.random(values.shape) < 0.2
    values[hard] = chance.choice(numpy.float32(_HARD), int(hard.sum()))
    halves = (values[:2].view(numpy.uint32) >> 16).astype(numpy.uint16)
    return halves[0].view(numpy.float32), halves[1].view(numpy.float32), values[2, :count]


def flushed(value: float) -> float:
    return float(numpy.copysign(0.0, value)) if abs(value) < SMALLEST else value


def fused(a: float, b: float, c: float) -> float:
    """a * b + c in float32 by rational numbers, rounded once."""
    a, b, c = flushed(a), flushed(b), flushed(c)
    if not all(map(numpy.isfinite, (a, b, c))) or 0.0 in (a, b):
        with numpy.errstate(all="ignore"):
            return float(numpy.float64(a) * b + c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return 0.0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    scale = Fraction(2) ** (23 - exponent)
    if not 2**23 <= abs(exact * scale) < 2**24:
        scale *= 2 if abs(exact * scale) < 2**23 else Fraction(1, 2)
    rounded = round(exact * scale) / scale  # to nearest, ties to even
    if abs(rounded) >= 2**128:
        return float("inf") if rounded > 0 else -float("inf")
    return flushed(float(rounded))


def model(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    left, right = (
        (x.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32) for x in (a, b)
    )
    pairs = zip(left.reshape(-1, 2).tolist(), right.reshape(-1, 2).tolist(), c.tolist())
    return numpy.float32([fused(x[0], y[0], fused(x[1], y[1], z)) for x, y, z in pairs])


def assert_same_bits(got: numpy.ndarray, want: numpy.ndarray) -> None:
    both = numpy.isnan(got) & numpy.isnan(want)
    bits = [numpy.where(both, 0, x.view(numpy.uint32)) for x in (got, want)]
    numpy.testing.assert_array_equal(*bits)


@pytest.mark.sampled
@pytest.mark.usefixtures("kernel_target")
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("native", [True, False])
def test_same_bits_with_and_without_an_instruction(native: bool, lanes: int) -> None:
    here = this_machine()
    if not native:
        kept = [f for f in here.features.split(",") if "avx512bf16" not in f]
        here = replace(here, features=",".join(kept))
    if not here.machine.fused:
        pytest.skip("rounds a product and a sum")
    kind = ir.Type(float32, lanes)
    loads = tuple(ir.Load(kind, name, index("i")) for name in "abc")
    body = loop("i", START, STOP, ir.Store("y", index("i"), ir.Op(kind, "dot_bfloat16", loads)),
                step=lanes)  # fmt: skip
    operands = [*(ir.Operand(name, float32) for name in "abc"), ir.Operand("y", float32, True)]
    built = kernel(operands, [body], name=f"pairs_{lanes}_{native}")
    a, b, c = drawn(4096)
    got, want = numpy.zeros(4096, numpy.float32), numpy.zeros(4096, numpy.float32)
    launch(built, [a, b, c, got], [], 0, 4096, processor=here)
    run(built, [a, b, c, want], [], 0, 4096)
    assert_same_bits(want, model(a, b, c))
    assert_same_bits(got, want)


def multiply(a: numpy.ndarray, b: numpy.ndarray, y: numpy.ndarray, compiled: bool) -> None:
    operands = [ir.Operand(name, int32, name == "y") for name in "aby"]
    steps = [
        ir.Tiles(True), ir.TileMemory(3, "y", ZERO, ROW), ir.TileMemory(0, "a", ZERO, ROW),
        ir.TileMemory(7, "b", ZERO, ROW), ir.TilePairs(3, 0, 7),
        ir.TileMemory(3, "y", ZERO, ROW, store=True), ir.Tiles(False),
    ]  # fmt: skip
    made = kernel(operands, steps, name="pair_tiles")
    (launch if compiled else run)(made, [a, b, y], [], 0, 1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_tiles(seed: int, compiled: bool, request: pytest.FixtureRequest) -> None:
    """Even and odd k are summed apart, and added to the sums together."""
    if compiled:
        request.getfixturevalue("tiles")
    a, b, c = (x.view(numpy.int32).reshape(16, 18).copy() for x in drawn(288, seed))
    y = c.copy()
    multiply(a, b, y, compiled)
    left, right = (
        (x[:, :16].copy().view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        for x in (a, b)
    )
    left, right = left.reshape(16, 16, 2), right.reshape(16, 16, 2)
    want = numpy.zeros((16, 16), numpy.float32)
    for i, j in numpy.ndindex(16, 16):
        parts = [0.0, 0.0]
        for k in range(16):
            for half in range(2):
                factors = float(left[i, k, half]), float(right[k, j, half])
                parts[half] = fused(*factors, parts[half])
        both = fused(1.0, parts[0], parts[1])
        want[i, j] = fused(1.0, both, float(c.view(numpy.float32)[i, j]))
    assert_same_bits(y[:, :16].copy().view(numpy.float32), want)
    numpy.testing.assert_array_equal(y[:, 16:], c[:, 16:])

"""Promise: sums of products of bytes are exact, whatever instructions the machine has."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.run import launch
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop

pytestmark = pytest.mark.usefixtures("kernel_target")

WAYS = {"the machine's": None, "pairs": {"vnni"}, "bytes": {"vnni", "avx512bw", "avx2", "sse2"}}


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("way", WAYS)
def test_extremes_and_chance(way: str, lanes: int) -> None:
    without = WAYS[way] or set()
    here = this_machine()
    kept = ",".join(f for f in here.features.split(",") if not any(w in f for w in without))
    kind = ir.Type(int32, lanes)
    loads = tuple(ir.Load(kind, name, index("i")) for name in "abc")
    body = loop("i", START, STOP, ir.Store("y", index("i"), ir.Op(kind, "dot_bytes", loads)),
                step=lanes)  # fmt: skip
    operands = [*(ir.Operand(name, int32) for name in "abc"), ir.Operand("y", int32, True)]
    built = kernel(operands, [body], name=f"dots_{lanes}_{len(without)}")
    chance = numpy.random.default_rng(1)
    a, b, c = chance.integers(-(2**31), 2**31, (3, 64)).astype(numpy.int32)
    a[:4] = -1  # 255 four times, with the most negative and the most positive bytes
    b[:4] = numpy.array([0x80808080, 0x7F7F7F7F, 0x807F807F, 0], numpy.uint32).view(numpy.int32)
    got, want = numpy.zeros(64, numpy.int32), numpy.zeros(64, numpy.int32)
    launch(built, [a, b, c, got], [], 0, 64, processor=replace(here, features=kept))
    run(built, [a, b, c, want], [], 0, 64)
    products = a.view(numpy.uint8).astype(numpy.int64) * b.view(numpy.int8)
    exact = (products.reshape(-1, 4).sum(1) + c).astype(numpy.int32)
    numpy.testing.assert_array_equal(want, exact)
    numpy.testing.assert_array_equal(got, exact)

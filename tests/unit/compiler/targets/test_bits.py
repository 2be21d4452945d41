"""Promise: flags are bits of an integer, and bits are counted, compiled as evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base import settings
from anydim.base.dtypes import DTYPES, boolean
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.run import launch
from anydim.compiler.targets.targets import target
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop, number, op

pytestmark = pytest.mark.usefixtures("kernel_target")


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
def test_flags_are_bits(lanes):
    most = target(settings.target).processor.max_lanes
    if most and lanes > most:
        pytest.skip(f"vectors have at most {most} lanes")
    bits = ir.Type(DTYPES[f"uint{lanes}"])
    operands = [ir.Operand("x", boolean), *(ir.Operand(n, bits.dtype, True) for n in "abc")]
    place = op("mul", index("i"), number(lanes))
    body = (
        ir.Let("flags", ir.Bitcast(bits, ir.Load(ir.Type(boolean, lanes), "x", place))),
        *(
            ir.Store(name, index("i"), value)
            for name, value in (
                ("a", ir.Var(bits, "flags")),
                ("b", ir.Op(bits, "ones", (ir.Var(bits, "flags"),))),
                ("c", ir.Op(bits, "trailing_zeros", (ir.Var(bits, "flags"),))),
            )
        ),
    )
    code = kernel(operands, [loop("i", START, STOP, *body)])
    x = np.random.default_rng(lanes).random((40, lanes)) < np.linspace(0, 0.3, 40)[:, None]
    results = []
    for runner in (run, launch):
        made = [np.zeros(40, bits.dtype.numpy) for _ in "abc"]
        runner(code, [x.reshape(-1), *made], [], 0, 40)
        results.append(made)
    first = np.where(x.any(1), x.argmax(1), lanes)
    for flags, ones, zeros in results:
        np.testing.assert_array_equal(np.unpackbits(flags.view(np.uint8), bitorder="little"),
                                      x.reshape(-1))  # fmt: skip
        np.testing.assert_array_equal(ones, x.sum(1))
        np.testing.assert_array_equal(zeros, first)

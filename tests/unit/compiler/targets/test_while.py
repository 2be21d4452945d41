"""Promise: loops that run as long as a condition holds do the same compiled and evaluated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anydim.base.dtypes import int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.run import build, call
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop, number, op

pytestmark = pytest.mark.usefixtures("kernel_target")

X = ir.Operand("x", int64)
Y = ir.Operand("y", int64, written=True)


def get(name: str) -> ir.Get:
    return ir.Get(ir.INDEX, name)


def load(offset: ir.Value, mask: ir.Value | None = None) -> ir.Load:
    return ir.Load(ir.INDEX, "x", offset, mask)


def greatest_divisor() -> ir.Kernel:
    """y[i] = gcd(x[2i], x[2i+1]), with a register that is set in a branch as well."""
    turn = (
        ir.Let("rest", op("mod", get("a"), get("b"))),
        ir.Assign("a", get("b")),
        ir.Assign("b", index("rest")),
        ir.If(op("less", get("b"), number(2)), (ir.Assign("turns", number(0)),)),
        ir.Assign("turns", op("add", get("turns"), number(1))),
    )
    place = op("mul", index("i"), number(2))
    body = (
        ir.Declare("a", load(place)),
        ir.Declare("b", load(op("add", place, number(1)))),
        ir.Declare("turns", number(0)),
        ir.While(op("greater", get("b"), number(0)), turn),
        ir.Store("y", index("i"), get("a")),
    )
    return kernel([X, Y], [loop("i", START, STOP, *body)])


def first_above() -> ir.Kernel:
    """y[i] = where x[n + i] would go into x[:n], found by moving down: the condition loads."""
    before = op("sub", get("j"), number(1))
    some = op("greater", get("j"), number(0))
    larger = op("greater", load(before, some), index("wanted"))
    body = (
        ir.Let("wanted", load(op("add", index("n"), index("i")))),
        ir.Declare("j", index("n")),
        ir.While(op("and", some, larger), (ir.Assign("j", before),)),
        ir.Store("y", index("i"), get("j")),
    )
    return kernel([X, Y], [loop("i", START, STOP, *body)], ["n"])


def both(code: ir.Kernel, x: np.ndarray, count: int, sizes: list[int]) -> np.ndarray:
    evaluated, compiled = np.zeros(count, np.int64), np.zeros(count, np.int64)
    run(code, [x, evaluated], sizes, 0, count)
    with build(code) as loaded:
        call(loaded.address(code.name), [x, compiled], sizes, 0, count)
    np.testing.assert_array_equal(compiled, evaluated)
    return compiled


def test_registers_change_from_turn_to_turn() -> None:
    x = np.random.default_rng(0).integers(0, 1000, (40, 2))
    x[0] = 5, 0
    found = both(greatest_divisor(), x.reshape(-1), 40, [])
    assert found.tolist() == [math.gcd(*pair) for pair in x.tolist()]


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_a_condition_may_load(n: int) -> None:
    random = np.random.default_rng(n)
    table, wanted = np.sort(random.integers(0, 20, n)), random.integers(-2, 22, 30)
    found = both(first_above(), np.concatenate([table, wanted]), 30, [n])
    np.testing.assert_array_equal(found, np.searchsorted(table, wanted, "right"))


def test_text() -> None:
    assert "      while b > 0\n        rest = a % b\n" in print_kernel(greatest_divisor())

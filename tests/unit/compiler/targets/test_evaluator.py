"""Promise: the evaluator refuses every access outside memory and every ill-formed program."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import boolean, float32, int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.targets.evaluated import evaluator
from anydim.sizes import as_size
from tests.unit.compiler.targets.programs import index, kernel, number, op

F32 = ir.Type(float32)
V4 = ir.Type(float32, 4)


def run(*steps: ir.Step, n: int = 0) -> numpy.ndarray:
    """y of 8 floats, after steps that may read x: 0, 1, ... 7."""
    operands = [ir.Operand("x", float32), ir.Operand("y", float32, True)]
    x, y = numpy.arange(8, dtype=numpy.float32), numpy.zeros(8, numpy.float32)
    evaluator.run(kernel(operands, steps, ["n"]), [x, y], [n])
    return y


def test_accesses_inside() -> None:
    y = run(ir.Store("y", number(4), ir.Load(V4, "x", number(0))))
    assert y.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("offset", [-1, 5, 8, 2**40])
def test_stray_accesses(offset: int) -> None:
    with pytest.raises(InternalError, match="is outside 'x'"):
        run(ir.Let("v", ir.Load(V4, "x", number(offset))))
    with pytest.raises(InternalError, match="is outside 'y'"):
        run(ir.Store("y", number(offset), ir.Const(V4, 1)))
    with pytest.raises(InternalError, match="is outside 'x'"):
        offsets = ir.Splat(ir.Type(int64, 4), number(8 if offset > 0 else -1))
        run(ir.Let("v", ir.Gather(V4, "x", offsets)))


def test_masked_lanes_may_be_anywhere() -> None:
    lanes = ir.Type(int64, 4)
    mask = op("less", ir.Iota(lanes), ir.Splat(lanes, index("n")))
    steps = (ir.Store("y", number(6), ir.Load(V4, "x", number(6), mask), mask),)
    assert run(*steps, n=2).tolist() == [0, 0, 0, 0, 0, 0, 6, 7]
    with pytest.raises(InternalError, match="is outside"):
        run(*steps, n=3)


@pytest.mark.parametrize("offset", [-(2**20), 2**20])
def test_a_vector_without_lanes_is_not_far_outside(offset: int) -> None:
    """Such a load is nothing, but takes as long as hundreds where the page is not mapped."""
    lanes = ir.Type(int64, 4)
    mask = op("less", ir.Iota(lanes), ir.Splat(lanes, index("n")))
    near, far = (ir.Load(V4, "x", number(at), mask) for at in (8, offset))
    assert run(ir.Store("y", number(0), near)).tolist() == [0.0] * 8
    with pytest.raises(InternalError, match="far outside"):
        run(ir.Store("y", number(0), far))
    with pytest.raises(InternalError, match="far outside"):
        run(ir.Store("y", number(offset), near, mask))


def test_inputs_are_not_written() -> None:
    with pytest.raises(InternalError, match="read-only"):
        run(ir.Store("x", number(0), ir.Const(F32, 1)))


@pytest.mark.parametrize(
    "step",
    [
        ir.Let("v", ir.Var(F32, "nothing")),
        ir.Let("v", ir.Get(F32, "nothing")),
        ir.Assign("nothing", ir.Const(F32, 1)),
        ir.Let("v", ir.Load(F32, "nothing", number(0))),
        ir.Call("nothing", ()),
        ir.For("i", number(0), number(3), number(0), ()),
        ir.Let("v", ir.Op(V4, "add", (ir.Const(V4, 1), ir.Const(F32, 1)))),
        ir.Let("v", ir.Op(F32, "add", (ir.Const(ir.INDEX, 1), ir.Const(F32, 1)))),
        ir.Let("v", ir.Splat(V4, ir.Const(V4, 1))),
    ],
)
def test_ill_formed_programs(step: ir.Step) -> None:
    with pytest.raises(InternalError, match=r"main|given"):
        run(step)


def test_wrong_operands() -> None:
    built = kernel([ir.Operand("x", float32)], [])
    with pytest.raises(InternalError, match="operands"):
        evaluator.run(built, [], [])
    with pytest.raises(InternalError, match="float32"):
        evaluator.run(built, [numpy.zeros(3)], [])


def test_text_of_a_kernel() -> None:
    total = op("add", ir.Get(V4, "total"), op("mul", ir.Load(V4, "x", index("i")), index("i")))
    steps = [
        ir.Declare("total", ir.Const(V4, 0.0)),
        ir.For("i", number(0), index("n"), number(4), (ir.Assign("total", total),)),
        ir.If(
            op("less", index("n"), number(3)),
            (ir.Store("y", number(0), ir.Reduce(F32, "add", ir.Get(V4, "total"))),),
            (ir.Store("y", number(0), ir.Get(V4, "total"), ir.Const(ir.Type(boolean, 4), True)),),
        ),
        ir.Switch(index("n"), ((1, (ir.Prefetch("x", number(9)),)),)),
    ]
    operands = [ir.Operand("x", float32), ir.Operand("y", float32, True)]
    assert print_kernel(kernel(operands, steps, ["n"])).splitlines() == [
        "kernel test_kernel(x: float32, y: float32 out; n)",
        "  function main(x: *float32, y: *float32, n, start, stop, scratch: *uint8)",
        "    total := 0.0.float32x4",
        "    for i in 0:n step 4",
        "      total <- total + (x[i : 4] * i)",
        "    if n < 3",
        "      y[0] = reduce add(total)",
        "    else",
        "      y[0 : 4 if True.boolx4] = total",
        "    switch n",
        "      case 1",
        "        prefetch read x[9]",
    ]


def test_a_printed_kernel_says_what_its_sizes_are_in_its_launches():
    made = kernel([ir.Operand("x", float32)], [], ["n", "m"])
    seq = as_size("seq")
    lines = print_kernel(made, [(seq, as_size(4)), (seq, 2 * seq), (seq, as_size(4))]).splitlines()
    assert lines[1:3] == ["  n = seq", "  m = 4 or 2*seq"]
    many = print_kernel(made, [(as_size(n), seq) for n in range(9)]).splitlines()
    assert many[1:3] == ["  n = 0, 1, 2, 3, 4 or 4 others", "  m = seq"]

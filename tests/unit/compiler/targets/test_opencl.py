"""Promise: texts for OpenCL say in which memory a pointer leads, and mean what loop IR means."""

from __future__ import annotations

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import boolean, float32, float64, int32, int64, uint8, uint32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.opencl.render import render
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.run import launch
from tests.kernel_targets import needs_device
from tests.unit.compiler.targets.programs import (
    START,
    STOP,
    elementwise,
    index,
    kernel,
    loop,
    number,
)
from tests.unit.compiler.targets.test_groups import sums

PROCESSOR = describe_processor("x86-64-v3")
F32 = ir.Type(float32)


def test_kernels_of_groups() -> None:
    text = render(sums(8), PROCESSOR)
    for part in (
        "reqd_work_group_size(8, 1, 1)", "__local f32 l0[8]", "__local f32 *shared",
        "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);", "(i64)get_local_id(0)",
        "(__global f32 *)AT(m0, w.at[0])",
    ):  # fmt: skip
        assert part in text
    entry = text[text.index("__kernel ") :]
    assert "if (" not in entry  # PoCL writes outside of arrays where barriers stand in a branch


def test_a_function_is_written_for_each_kind_of_memory() -> None:
    twice = ir.Function("twice", (ir.Pointer("p", float32), ir.Scalar("at")), (
        ir.Let("v", ir.Load(ir.Type(float32, 4), "p", index("at"))),
        ir.Store("p", index("at"), ir.Op(ir.Type(float32, 4), "add", (
            ir.Var(ir.Type(float32, 4), "v"), ir.Var(ir.Type(float32, 4), "v"),
        ))),
    ))  # fmt: skip
    body = (
        ir.Stack("own", float32, 4),
        ir.Store("own", number(0), ir.Load(ir.Type(float32, 4), "x", number(0))),
        ir.Call("twice", (ir.Address("own", number(0)), number(0))),
        ir.Call("twice", (ir.Address("x", number(0)), number(0))),
        ir.Store("x", number(4), ir.Load(ir.Type(float32, 4), "own", number(0))),
    )
    made = kernel([ir.Operand("x", float32, True)], body, others=[twice])
    text = render(made, PROCESSOR)
    assert "twice_g(__global f32 *restrict p" in text
    assert "twice_p(f32 *restrict p" in text
    assert "load_f32x4_private" in text


def test_vectors_that_opencl_has_not() -> None:
    with pytest.raises(InternalError, match="no vectors like u8x64"):
        render(elementwise(["add"], uint8, 64, 2), PROCESSOR)


@pytest.mark.sampled(most=2)
@needs_device
@pytest.mark.parametrize("lanes", [1, 2, 16])
def test_functions_mean_what_they_mean(lanes: int) -> None:
    """A few of each kind; the slow tests of `test_functions.py` have all.

    Bits of 16 lanes are not counted: PoCL 3.0 takes minutes and gigabytes for them, or ends the
    process, on a processor that it does not know.
    """
    counted = () if lanes == 16 else ("ones", "trailing_zeros", "leading_zeros")
    random = numpy.random.default_rng(0)
    for dtype, functions in {
        float32: ("add", "div", "sqrt", "floor", "round", "min", "copysign", "exp"),
        float64: ("sub", "trunc", "abs", "max"),
        int32: ("floordiv", "shift_right", "abs", "mul", "min"),
        int64: ("mod", "shift_left", "neg"),
        uint32: ("shift_right", "div", *counted),
    }.items():
        integers = dtype.kind in ("int", "uint")
        data = random.integers(-70, 70, (2, 32)) if integers else random.normal(size=(2, 32)) * 9
        x0, x1 = data.astype(dtype.numpy)
        if not integers:
            x0[:4] = [numpy.nan, numpy.inf, -0.0, 0.5]
        made = elementwise_of(functions, dtype, lanes)
        found, expected = (
            [numpy.zeros(32, o.dtype.numpy) for o in made.operands[2:]] for _ in range(2)
        )
        with settings.override(target="opencl"):
            launch(made, [x0, x1, *found], [], 0, 32)
        evaluator.run(made, [x0, x1, *expected], [], 0, 32)
        for function, one, other in zip(functions, found, expected):
            numpy.testing.assert_allclose(  # exp has an error of one unit in the last place
                one, other, rtol=1.2e-7 if function == "exp" else 0, err_msg=f"{function} {dtype}"
            )


def elementwise_of(functions: tuple[str, ...], dtype, lanes: int) -> ir.Kernel:
    """y0 = f0(x0, x1) and so on; those of one argument take the first."""
    one = {"sqrt", "floor", "round", "exp", "trunc", "abs", "neg", "ones", "trailing_zeros",
           "leading_zeros"}  # fmt: skip
    kind = ir.Type(dtype, lanes)
    loads = [ir.Load(kind, name, index("i")) for name in ("x0", "x1")]
    outputs = [ir.Operand(f"y{n}", dtype, True) for n in range(len(functions))]
    stores = [
        ir.Store(o.name, index("i"), ir.Op(kind, f, tuple(loads[: 1 if f in one else 2])))
        for o, f in zip(outputs, functions)
    ]
    inputs = [ir.Operand("x0", dtype), ir.Operand("x1", dtype)]
    return kernel([*inputs, *outputs], [loop("i", START, STOP, *stores, step=lanes)])


@needs_device
@pytest.mark.parametrize("lanes", [4, 8])
def test_masked_off_lanes_touch_no_memory(lanes: int) -> None:
    kind, flags = ir.Type(float32, lanes), ir.Type(boolean, lanes)
    places = ir.Iota(ir.Type(int64, lanes))
    mask = ir.Op(flags, "less", (places, ir.Splat(ir.Type(int64, lanes), index("n"))))
    far = number(1 << 40) * ir.Convert(ir.INDEX, index("n").equals(number(0)))  # fmt: skip
    body = (ir.Store("y", far, ir.Load(kind, "x", far, mask), mask),)
    made = kernel([ir.Operand("x", float32), ir.Operand("y", float32, True)], body, ["n"])
    for count in (0, 1, lanes - 1, lanes):
        x, y = numpy.arange(1, 17, dtype=numpy.float32), numpy.zeros(16, numpy.float32)
        with settings.override(target="opencl"):
            launch(made, [x, y], [count])
        assert y.tolist() == [*x[:count], *[0] * (16 - count)]

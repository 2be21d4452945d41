"""Promise: a masked-off lane touches no memory, not even a page that may not be read."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy
import pytest

from anydim.base.dtypes import (
    DType,
    bfloat16,
    boolean,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
)
from anydim.compiler.kernels import ir
from anydim.compiler.targets.run import launch
from tests.unit.compiler.targets.programs import index, kernel, number, op

pytestmark = pytest.mark.usefixtures("kernel_target")

PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")


class Guarded:
    """Memory that ends where a page begins that may not be touched."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 3 * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        library = ctypes.CDLL(None, use_errno=True)
        for page in (0, 2):
            address = ctypes.c_void_p(self.start + page * PAGE)
            assert library.mprotect(address, PAGE, 0) == 0

    def last(self, dtype: DType, count: int) -> numpy.ndarray:
        """`count` elements that end at the forbidden page."""
        return self._view(2 * PAGE - count * dtype.bytes, dtype, count)

    def first(self, dtype: DType, count: int) -> numpy.ndarray:
        """`count` elements that begin where the other forbidden page ends."""
        return self._view(PAGE, dtype, count)

    def _view(self, byte: int, dtype: DType, count: int) -> numpy.ndarray:
        memory = (ctypes.c_uint8 * max(1, count * dtype.bytes)).from_address(self.start + byte)
        return numpy.frombuffer(memory, dtype.numpy, count)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 64])
@pytest.mark.parametrize("dtype", [float32, float64, float16, int8, int32, int64, boolean], ids=str)
def test_masked_access_at_the_end_of_memory(dtype: DType, lanes: int) -> None:
    kind, wide = ir.Type(dtype, lanes), ir.Type(int64, lanes)
    mask = op("less", ir.Iota(wide), ir.Splat(wide, index("n")))
    spread = op("sub", ir.Splat(wide, number(0)), ir.Iota(wide))
    steps = [
        ir.Let("mask", mask),
        ir.Let("value", ir.Load(kind, "x", number(0), ir.Var(mask.type, "mask"))),
        ir.Store("y", number(0), ir.Var(kind, "value"), ir.Var(mask.type, "mask")),
    ]
    if lanes > 1:
        gathered = ir.Gather(kind, "back", spread, ir.Var(mask.type, "mask"))
        steps.append(ir.Store("z", number(0), gathered, ir.Var(mask.type, "mask")))
    names = [("x", False), ("y", True), ("back", False), ("z", True)]
    operands = [ir.Operand(name, dtype, written) for name, written in names]
    built = kernel(operands, steps, ["n"])
    areas = [Guarded() for _ in range(4)]
    for count in {0, 1, lanes // 2, lanes - 1, lanes}:
        x, y, z = (area.last(dtype, count) for area in areas[:3])
        back = areas[3].first(dtype, max(count, 1))  # walked backward to the first byte
        x[:], back[:], y[:] = numpy.arange(count) % 2, 1, 0
        launch(built, [x, y, back[-1:], z], [count])
        numpy.testing.assert_array_equal(y, x)
        if lanes > 1:
            numpy.testing.assert_array_equal(z, numpy.ones(count, dtype.numpy))


@pytest.mark.parametrize("dtype", [int8, int16, bfloat16, float16, boolean], ids=str)
def test_one_lane_of_what_was_cut_shorter(dtype: DType) -> None:
    """A known mask of one lane, also where only numbers say that it is one."""
    wide, kind = ir.Type(int32, 16), ir.Type(dtype, 16)
    for count in (1, 2):
        left = op("sub", op("mul", number(8), number(2)), number(16 - count))
        mask = op("less", ir.Iota(ir.Type(int64, 16)), ir.Splat(ir.Type(int64, 16), left))
        steps = [
            ir.Let("value", ir.Convert(kind, ir.Load(wide, "x", number(0)))),
            ir.Store("y", number(0), ir.Var(kind, "value"), mask),
            ir.Store("z", number(0), ir.Convert(wide, ir.Var(kind, "value"))),
        ]
        x, y = ir.Operand("x", int32), ir.Operand("y", dtype, True)
        built = kernel([x, y, ir.Operand("z", int32, True)], steps)
        numbers, z = numpy.arange(1, 17, dtype=numpy.int32), numpy.zeros(16, numpy.int32)
        area = Guarded()
        written = area.last(dtype, count)
        launch(built, [numbers, written, z], [])
        numpy.testing.assert_array_equal(written, numbers[:count].astype(dtype.numpy))


def test_stores_leave_their_neighbours_alone() -> None:
    """A canary on both sides of what is written, for every number of lanes in use."""
    kind, wide = ir.Type(float32, 16), ir.Type(int64, 16)
    mask = op("less", ir.Iota(wide), ir.Splat(wide, index("n")))
    store = ir.Store("y", number(8), ir.Const(kind, 1.0), mask)
    built = kernel([ir.Operand("y", float32, True)], [store], ["n"])
    for count in range(17):
        got = numpy.full(40, 7, numpy.float32)
        launch(built, [got], [count])
        want = numpy.full(40, 7, numpy.float32)
        want[8 : 8 + count] = 1
        numpy.testing.assert_array_equal(got, want)


def test_prefetch_of_any_address_is_harmless() -> None:
    steps = [ir.Prefetch("y", number(2**40)), ir.Prefetch("y", number(-(2**40)), write=True)]
    launch(kernel([ir.Operand("y", float32, True)], steps), [numpy.zeros(1, numpy.float32)], [])

"""Promise: kernels of groups run as their items would, and what items may not do is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy
import pytest

from anydim.base.dtypes import float32, uint8
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.targets import target
from tests.unit.compiler.targets.programs import START, index, loop, number, op

F32 = ir.Type(float32)
ITEM = ir.Item()
OPERANDS = (ir.Operand("x", float32), ir.Operand("y", float32, True))


def grouped(body: Sequence[ir.Step], group: int, count: int) -> ir.Kernel:
    """A kernel of groups with an array `shared` and a size n."""
    locals = [ir.Local("shared", float32, count)] if group else []
    parameters = (
        *(ir.Pointer(o.name, o.dtype) for o in OPERANDS), ir.Scalar("n"), ir.Scalar("start"),
        ir.Scalar("stop"), ir.Pointer("scratch", uint8),
        *(ir.Pointer(a.name, a.dtype) for a in locals),
    )  # fmt: skip
    main = ir.Function("main", parameters, tuple(body))
    return named_kernel("grouped", OPERANDS, ["n"], [main], (), group, locals)


def sums(group: int) -> ir.Kernel:
    """y[g] is the sum of row g of x, which has n columns."""
    row = op("mul", START, index("n"))
    cell = ir.Load(F32, "x", op("add", row, index("c")))
    columns = ir.For("c", ITEM, index("n"), number(group), (
        ir.Assign("sum", op("add", ir.Get(F32, "sum"), cell)),
    ))  # fmt: skip
    body: list[ir.Step] = [
        ir.Declare("sum", ir.Const(F32, 0.0)), columns,
        ir.Store("shared", ITEM, ir.Get(F32, "sum")), ir.Barrier(),
    ]  # fmt: skip
    half = group // 2
    while half:
        pair = op(
            "add", ir.Load(F32, "shared", ITEM),
            ir.Load(F32, "shared", op("add", ITEM, number(half))),
        )  # fmt: skip
        body += [
            ir.If(op("less", ITEM, number(half)), (ir.Store("shared", ITEM, pair),)), ir.Barrier()
        ]  # fmt: skip
        half //= 2
    first = ir.Store("y", START, ir.Load(F32, "shared", number(0)))
    body.append(ir.If(op("equal", ITEM, number(0)), (first,)))
    return grouped(body, group, group)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 0), (1, 1), (3, 7), (2, 19)])
def test_rows_are_summed(rows: int, columns: int) -> None:
    x = numpy.arange(rows * columns, dtype=numpy.float32).reshape(rows, columns)
    y = numpy.full(rows, -1, numpy.float32)
    evaluator.run(sums(8), [x, y], [columns], 0, rows)
    numpy.testing.assert_array_equal(y, x.sum(1))


def run(*steps: ir.Step, group: int = 4, groups: int = 1) -> numpy.ndarray:
    x, y = numpy.zeros(8, numpy.float32), numpy.zeros(8, numpy.float32)
    evaluator.run(grouped(steps, group, 4), [x, y], [0], 0, groups)
    return y


def test_items_that_race_are_refused() -> None:
    one = ir.Const(F32, 1.0)
    with pytest.raises(InternalError, match="byte 0 of 'shared' is accessed by item 1"):
        run(ir.Store("shared", number(0), one))
    following = op("mod", op("add", ITEM, number(1)), number(4))
    with pytest.raises(InternalError, match="of 'shared' is accessed by item"):
        run(ir.Store("shared", ITEM, one), ir.Let("v", ir.Load(F32, "shared", following)))
    run(ir.Store("shared", ITEM, one), ir.Barrier(), ir.Let("v", ir.Load(F32, "shared", following)))
    with pytest.raises(InternalError, match="of 'y' is accessed by group 1"):
        run(ir.Store("y", ITEM, one), groups=2)


def test_items_that_do_not_meet_are_refused() -> None:
    with pytest.raises(InternalError, match="do not reach the same barrier"):
        run(ir.If(op("less", ITEM, number(2)), (ir.Barrier(),)))
    with pytest.raises(InternalError, match="do not reach the same barrier"):
        run(ir.If(op("less", ITEM, number(2)), (ir.Barrier(),), (ir.Barrier(), ir.Barrier())))


def test_errors_of_an_item_are_raised() -> None:
    stray = loop("i", ITEM, number(4), ir.Store("shared", number(9), ir.Const(F32, 1.0)))
    with pytest.raises(InternalError, match="is outside 'shared'"):
        run(ir.Barrier(), stray)


def test_a_range_has_no_items() -> None:
    for step in (ir.Barrier(), ir.Let("v", ITEM)):
        with pytest.raises(InternalError, match="outside a work-group"):
            evaluator.run(grouped([step], 0, 4), [numpy.zeros(1, numpy.float32)] * 2, [0])


def aside(valid: int = 4, offset: int = 0, source: int = 0) -> ir.CopyAside:
    """Four elements of x on their way to `shared`, by item 0."""
    return ir.CopyAside("shared", number(offset), "x", number(source), float32, 4, number(valid))


def shown(*steps: ir.Step) -> numpy.ndarray:
    """y after steps of the first item; then each item stores its element of `shared`."""
    x, y = numpy.arange(1, 9, dtype=numpy.float32), numpy.zeros(8, numpy.float32)
    first = ir.If(op("equal", ITEM, number(0)), steps)
    body = [first, ir.Barrier(), ir.Store("y", ITEM, ir.Load(F32, "shared", ITEM))]
    evaluator.run(grouped(body, 4, 4), [x, y], [0], 0, 1)
    return y[:4]


def test_copies_aside_are_there_when_they_were_waited_for() -> None:
    copied = shown(aside(), ir.CopiesEnd(), ir.CopiesWait())
    numpy.testing.assert_array_equal(copied, [1, 2, 3, 4])
    copied = shown(aside(2, source=4), ir.CopiesEnd(), ir.CopiesWait())
    numpy.testing.assert_array_equal(copied, [5, 6, 0, 0])
    numpy.testing.assert_array_equal(
        shown(aside(0, source=-99), ir.CopiesEnd(), ir.CopiesWait()), numpy.zeros(4)
    )
    later = (aside(), ir.CopiesEnd(), aside(source=4), ir.CopiesEnd(), ir.CopiesWait(1))
    with pytest.raises(InternalError, match="of 'shared' is accessed by item"):
        shown(*later)  # the second one may be there, or not
    numpy.testing.assert_array_equal(shown(*later, ir.CopiesWait()), [5, 6, 7, 8])


def test_copies_aside_of_odd_places_are_refused() -> None:
    for copy, words in (
        (aside(offset=2), "from 0 to 2"), (aside(source=1), "from 1 to 0"),
        (aside(valid=5), "has 5 valid ones"), (aside(source=8), "is outside 'x'"),
    ):  # fmt: skip
        with pytest.raises(InternalError, match=words):
            shown(copy)


def test_groups_are_part_of_what_a_kernel_is() -> None:
    assert grouped([], 4, 4).name != grouped([], 8, 4).name != grouped([], 8, 8).name
    text = print_kernel(sums(8))
    for line in (
        "in groups of 8",
        "shared = local float32[8]",
        "barrier",
        "for c in item:n step 8",
    ):
        assert line in text


@pytest.mark.parametrize("name", ["cuda", "opencl"])
def test_pointers_to_local_memory_are_not_restricted(name: str) -> None:
    """A compiler would keep what an item loaded before a barrier, though others wrote it since.

    NVRTC did so: every item but the first had a sum of its own in place of the row's.
    """
    code = target(name)
    (source,) = code.sources([sums(8)], code.processor).values()
    text = source.text()
    assert re.search(r"f32 \*shared[,)]", text)
    assert re.search(r"f32 \*\w*restrict\w* y,", text)

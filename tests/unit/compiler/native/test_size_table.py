"""Promise: tables of sizes have the values of `Size.evaluate`, and its errors."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy
import pytest

from anydim.base.errors import DimError
from anydim.compiler.native import written
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.native.size_table import COMPUTE, SizeTable, size_table_code
from anydim.runtime.layout import PARALLEL, WORTH_WAKING
from anydim.sizes import Box, Dim, Size, as_size, parse
from tests.unit.compiler.native.test_arithmetic import EXPRESSIONS, Native
from tests.unit.compiler.targets.host_code import Both

SIZES = [
    *map(parse, EXPRESSIONS),
    *map(parse, ("(a - 9)//8", "(a - 9) % 8", "(a - 20)//1", "(7 if a >= 4 else b)", "4*(b//a)")),
    as_size(-(2**40) - 3),
]
EDGES = (0, 1, 2, 4, 7, 8, 9, 20, 2**31, 2**62, 2**63 - 1)


def run(table: SizeTable) -> Both:
    """A function that computes a table, on a block with a and b in its slots 8 and 9."""
    body, (numbers, count) = Body(), table.numbers()
    body.give(body.ask(COMPUTE, parameter("block"), body.table(numbers), body.array(count)))
    main = body.function("tested", ("block",), public=True, quick=True)
    return Both(*size_table_code(), main)


def evaluated(size: Size, **env: int) -> int | None:
    """The value of a size; None if it does not fit 64 bits, or a divisor is 0."""
    try:
        value = size.evaluate(env)
    except DimError:
        return None
    return value if abs(value) < 2**63 else None


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_value_is_that_of_evaluate(size: Size) -> None:
    table = SizeTable({"a": 8, "b": 9})
    table.store(10, table.value(size))
    compute = run(table)
    for a, b in itertools.product(EDGES, repeat=2):
        code, words = compute([*range(8), a, b, 0])
        wanted = evaluated(size, a=a, b=b)
        if wanted is None:
            assert code == 0
        elif code == 1 or max(a, b) < 2**30:  # parts of it may not fit
            assert (code, words[10]) == (1, wanted)


def test_equal_parts_of_sizes_are_one_value() -> None:
    table = SizeTable({"a": 8, "b": 9})
    table.store(10, table.value(parse("a*b*((a + 1)//2)")))
    before = len(table)
    table.store(11, table.value(parse("a*b*((a + 1)//2) + 5")))
    assert len(table) == before + 2  # 5, and the sum


def test_a_number_above_64_bits_fits_nowhere() -> None:
    table = SizeTable({})
    table.store(10, table.value(as_size(2**64)))
    assert run(table)([0] * 11)[0] == 0


@pytest.mark.parametrize(
    "a, b, worth",
    [(1, 9, 0), (2, 0, 1), (WORTH_WAKING // 2 - 1, 2, 1), (WORTH_WAKING // 2, 0, WORTH_WAKING)],
)
def test_ranges_tell_whether_threads_are_worthwhile(a: int, b: int, worth: int) -> None:
    table = SizeTable({"a": 8, "b": 9})
    table.range(Size.symbol("a"), as_size(1), 2)
    table.range(Size.symbol("b"), as_size(5), 1)
    assert run(table)([7, 7, 7, 0, 0, 0, 0, 0, a, b])[1][PARALLEL] == worth


@pytest.mark.parametrize("values", [4096, 6], ids=["one table", "many tables"])
def test_sizes_of_a_program_are_those_of_evaluate(values: int) -> None:
    box = Box.of(Dim("a", 0, 10**9), Dim("b", 0, 10**9))
    sizes = [parse(text) for text in EXPRESSIONS]
    patch = mock.patch.multiple(written, MAX_INLINE_SIZES=0, MOST_VALUES=values)
    with patch, mock.patch.object(written, "_compute", wraps=written._compute) as compute:
        native = Native(box, sizes)
    assert (compute.call_count > 3) == (values == 6)
    for a, b in itertools.product((0, 1, 3, 5, 8, 20, 10**9), repeat=2):
        wanted = {size: evaluated(size, a=a, b=b) for size in sizes if size.constant is None}
        kind, found = native(a, b)
        if None in wanted.values():
            assert kind == "large"
        else:
            assert (kind, {size: found[size] for size in wanted}) == ("", wanted)


def test_arguments_of_launches_are_their_sizes() -> None:
    box, sizes = Box.of(Dim("a"), Dim("b")), [parse("a*b"), as_size(2**33), parse("a*b")]
    with mock.patch.object(written, "MAX_INLINE_SIZES", 0):
        native = Native(box, sizes)
    segment, layout = native.program.straight, native.layout
    assert segment is not None
    block = numpy.zeros(layout.words, numpy.int64)
    block[layout.input_shapes :][:2] = 3, 5
    assert native.executable._bind(block.ctypes.data) == 0
    first = layout.first_slot + segment.arguments[0]
    assert block[first : first + 3].tolist() == [15, 2**33, 15]

"""Emits the sizes that launches need into the slots of a call's block.

Few sizes are straight code; many are computed by tables (`size_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.native.arithmetic import Arithmetic
from anydim.compiler.native.body import FALSE, ZERO, parameter
from anydim.compiler.native.size_table import (
    COMPUTE,
    MOST_VALUES,
    SizeTable,
    worth_of_threads,
)
from anydim.runtime.layout import ARENA_BYTES, BEHIND, BYTES, EMPTY, PARALLEL, Layout
from anydim.runtime.program.segment import Segment
from anydim.sizes import Size

MAX_INLINE_SIZES = 48  # slots and sizes of launches that are straight code
_BLOCK = parameter("block")
_Range = tuple[Size, Size, int]  # range, grain size, number of launches


def emit_sizes(program: Segment, layout: Layout, arithmetic: Arithmetic) -> None:
    """Emit output shapes, sizes, bytes, and whether any launch can use several threads."""
    body = arithmetic.body
    sizes = dict(_sizes(program, layout))
    ranges = _ranges(program)
    if len(program.slots) + len(sizes) <= MAX_INLINE_SIZES:
        for word, size in sizes.items():
            body.store(_BLOCK, word, arithmetic.size(size))
        _emit_parallel(ranges, arithmetic)
    else:
        if not ranges:
            body.store(_BLOCK, PARALLEL, ZERO)
        for table in _tables(program, layout, sizes, ranges):
            _compute(table, arithmetic)
    _write_bytes(program, layout, arithmetic)


def _sizes(program: Segment, layout: Layout) -> Iterator[tuple[int, Size]]:
    """Yield slots of the block with their sizes."""
    yield from enumerate(program.slots, layout.first_slot)
    for number, spec in enumerate(program.signature.outputs):
        for axis, size in enumerate(spec.shape):
            yield layout.output_axis(number, axis), size
    for site, first in zip(program.sites, program.arguments):
        yield from enumerate(site.sizes, layout.first_slot + first + len(site.operands))


def _ranges(program: Segment) -> list[_Range]:
    if program.threads < 2:
        return []
    wide = Counter(step.shared for step in program.sites[program.first_launch :])
    return [(*range, wide[range]) for range in sorted(wide, key=_in_order)]


def _in_order(range: tuple[Size, Size]) -> str:
    parallel, grain = range
    return f"({parallel!r}, {grain})"  # as text, for the same order in every process


def _emit_parallel(ranges: Sequence[_Range], arithmetic: Arithmetic) -> None:
    """Emit whether any of the parallel ranges is worth a second thread, and whether all together
    are worth waking it."""
    body, several, grains = arithmetic.body, FALSE, ZERO
    for parallel, grain, often in ranges:
        length, least = arithmetic.size(parallel), arithmetic.size(grain)
        enough = length >= 2 * least
        several = body.let(enough if several is FALSE else several | enough)
        grains = body.let(grains + length / least * often)
    worth = ZERO if several is FALSE else worth_of_threads(several, grains)
    body.store(_BLOCK, PARALLEL, worth)


def _write_bytes(program: Segment, layout: Layout, arithmetic: Arithmetic) -> None:
    """Emit the bytes of the arena and of setup blocks, initially empty.

    Small blocks are part of the arena.
    """
    body = arithmetic.body
    words = {size: layout.first_slot + number for number, size in enumerate(program.slots)}

    def value(size: Size) -> ir.Value:
        fixed = size.constant
        return body.load(_BLOCK, words[size]) if fixed is None else constant(fixed)

    end, shared = value(program.total_bytes), ZERO
    for number, setup in enumerate(program.setups):
        bytes, first = value(setup.bytes), layout.setup(number)
        small = body.let(bytes < setup.least)
        body.store(_BLOCK, first + BYTES, select(small, 0, bytes))
        body.store(_BLOCK, first + BEHIND, select(small, end, -1))
        body.store(_BLOCK, first + EMPTY, 1)
        end = body.let(end + select(small, bytes, 0))
        shared = body.let(shared + select(small, 0, bytes))
    if program.setups:
        body.store(_BLOCK, layout.setup(0) - 1, shared)
    body.store(_BLOCK, ARENA_BYTES, end)


# ---- tables -------------------------------------------------------------------------------------


def _tables(
    program: Segment, layout: Layout, sizes: dict[int, Size], ranges: Sequence[_Range]
) -> Iterator[SizeTable]:
    """Yield the tables of all sizes: one, unless there are too many values.

    Then others come before, with the sizes of slots, inner ones first; the last one reads those.
    """
    names = program.signature.box.names
    dims = {name: layout.first_dim + number for number, name in enumerate(names)}
    table, done = SizeTable(dims), dict[Size, int]()
    words = {size: layout.first_slot + number for number, size in enumerate(program.slots)}
    for size in sorted(words, key=lambda size: (size.depth, size.atom is None)):
        if len(table) > MOST_VALUES:
            yield table
            table = SizeTable(dims, done)
        table.store(words[size], table.value(size))
        done[size] = words[size]
    if len(table) > MOST_VALUES // 2:
        yield table
        table = SizeTable(dims, done)
    for word, size in sizes.items():
        table.store(word, table.value(size))
    for length, grain, launches in ranges:
        table.range(length, grain, launches)
    yield table


def _compute(table: SizeTable, arithmetic: Arithmetic) -> None:
    body = arithmetic.body
    numbers, count = table.numbers()
    where, values = body.table(numbers), body.array(count)
    arithmetic.require(body.let(body.ask(COMPUTE, _BLOCK, where, values).equals(1)))

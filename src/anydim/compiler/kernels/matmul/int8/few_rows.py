"""Products of a few rows by an unpacked run-time b of bytes.

    for each word along k, four rows of b, from left to right
        words of the columns, built in registers
        for each row of a: its sums, in the first-level cache, plus the word times those

For so few rows, packing a panel takes longer than the sums; rows read in memory order are bound by
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from anydim.base.dtypes import int32, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import number, shuffle, variable
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Form
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import dot
from anydim.compiler.kernels.matmul.int8.int8_packing import FLIP, PACK, BytesPack
from anydim.compiler.kernels.matmul.int8.packed_layout import Layout
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, WORD
from anydim.lang.tree import Cast

MAX_ROWS = 4
WIDE = 1024  # columns at a time


def supports_few_rows(form: Int8Form, layout: Layout) -> bool:
    """Whether columns of b are contiguous and need no sums, and rows may be few."""
    parts = form.b.parts
    return (
        form.word == BYTES
        and not (layout.b_packed or layout.a.has_zero or form.taps or form.columns)
        and parts is not None
        and all(stride.constant == 1 for _, stride in parts.own[-1:])
        and (form.m.extent.constant or 0) <= MAX_ROWS
    )


def few_rows(pack: BytesPack) -> ir.Function:
    """Return the function of `rows` rows, words of `a_row`, by columns `first` to `first + count`.

    A row of sums at dst has WIDE elements.
    """
    code, root, lanes = pack.code, pack.root(), pack.lanes
    count, vector = PACK.count, ir.Type(int32, lanes)
    with code.range(0, variable("rows")) as i, code.range(0, count, lanes * WORD) as at:
        for j in range(WORD):
            code.emit(ir.Store("dst", i * WIDE + at + j * lanes, number(int32, 0, lanes)))

    def group(group: ir.Value, present: int) -> None:
        levels = [root.inner({"k": group * WORD + byte}) for byte in range(present)]

        def columns(at: ir.Value, mask: ir.Value | None) -> None:
            parts: list[ir.Value] = [number(uint8, 0, lanes * WORD)] * WORD
            for byte, level in enumerate(levels):
                column = {"n": PACK.first + at}
                own = level.inner(column, lane="n", lanes=lanes * WORD, mask=mask)
                parts[byte] = own.name(own.value(Cast(uint8, pack.form.b.read), uint8))
                pack.code.take(own.steps)
            words = [pack.code.let(_flip(word)) for word in _words(parts, vector)]
            with pack.code.range(0, variable("rows")) as i:
                a = ir.Load(ir.Type(int32), "words", i * variable("a_row") + group)
                word = pack.code.let(a.spread(lanes))
                for j, other in enumerate(words):
                    to = i * WIDE + at + j * lanes
                    total = ir.Load(vector, "dst", to)
                    both = (word, other) if pack.layout.a_unsigned else (other, word)
                    pack.code.emit(ir.Store("dst", to, dot(*both, total)))

        with ExitStack() as scopes:
            for level in levels:
                scopes.enter_context(pack.hoisting(level))
            pack.code.sweep(ir.constant(0), count, lanes * WORD, columns)

    def _flip(word: ir.Value) -> ir.Value:
        return word ^ FLIP if pack.layout.b.flipped else word

    with pack.hoisting(root):
        pack.groups(group)
    return pack.function("few", ir.Pointer("words", int32), more=("rows", "a_row"))


def _words(parts: Sequence[ir.Value], vector: ir.Type) -> list[ir.Value]:
    """Interleave the bytes of four k-steps to one word per column; returns vectors of words."""
    lanes, wide = vector.lanes, vector.lanes * WORD
    found: list[ir.Value] = []
    for half in (0, wide // 2):
        order = [at + part * wide for at in range(half, half + wide // 2) for part in (0, 1)]
        left, right = (shuffle(parts[at], parts[at + 1], tuple(order)) for at in (0, 2))
        for start in (0, 2 * lanes):
            pairs = (
                start + 2 * at + part * wide + byte
                for at in range(lanes)
                for part in (0, 1)
                for byte in (0, 1)
            )
            found.append(ir.Bitcast(vector, shuffle(left, right, tuple(pairs))))
    return found

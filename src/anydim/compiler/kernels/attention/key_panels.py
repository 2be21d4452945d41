"""Panels of keys and values, and products of a tile of rows with them in registers.

Keys are panels [ceil(keys / lanes)][depth][lanes], values contiguous whole vectors. Rows of keys
are loaded four elements at a time, combined to vectors and transposed in groups of four lanes. A
panel with fewer keys repeats the last one: the excess lanes are masked later.

    c[i, p*lanes + l] = sum over k < count of a[i*a_row + k] * b[p*b_panel + k*b_row + l]

for i < rows, p < vectors. Each function has its own number of rows; two or four panels run at a
time. With `pairs`, an element is a word of two bfloat16 along k, and queries are packed as well.
The same functions compute scores (b: keys, transposed to panels) and mix values (b: unpacked
values, a panel every `lanes` columns). Compiled once per machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from anydim.base.dtypes import DType, bfloat16, float32, uint16
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention.attention_plan import LINE, LOOP
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.register_transpose import (
    concatenated_vectors,
    transposed_block,
)
from anydim.compiler.kernels.codegen.writer import Buffer, Writer
from anydim.compiler.kernels.ir import (
    Like,
    constant,
    dot_pairs,
    fma,
    for_pairs,
    least,
    shuffle,
)

GROUP = 4  # elements of a row per load, and lanes per transpose
AHEAD = 6  # panels: the keys of a decoder's step are far, and 16 rows alternately are no stream
VALUES_AHEAD = 64  # rows of values that are packed
POINTERS = ("a", "b", "c")
SCALARS = ("count", "a_row", "b_row", "b_panel", "c_row", "vectors")


def pack_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int,
    pairs: bool, narrow: bool,
) -> tuple[ir.Step, ...]:  # fmt: skip
    """Return steps that fill "packed_keys" from rows of `depth` elements, `stride` apart.

    With `pairs`, panels have words; elements of `narrow` keys lie in memory as words.
    """
    code = Writer("keys_")
    source, held = Buffer(code, keys, float32), count
    if narrow:
        start, stride = start / 2, stride / 2
    words, each = depth // 2 if pairs else depth, 2 if pairs and not narrow else 1
    with code.range(0, LOOP.panels) as panel:
        first = code.let(panel * lanes)
        target = Buffer(code, "packed_keys", float32).part(code.let(first * words))
        whole = code.let(first + lanes <= held)
        for last in (None, held - 1):
            with code.when(whole) if last is None else code.otherwise():
                numbers = (first + i for i in range(lanes))  # clamped to the last key
                own = numbers if last is None else (least(n, last) for n in numbers)
                rows = [source.part(code.let(n * stride + start)) for n in own]
                ahead = code.let((first + AHEAD * lanes) * stride + start)
                prefetch = partial(_prefetch, code, keys, ahead, stride, 2 if narrow else 1)
                _panel(code, rows, target, words, each, prefetch)
    return code.written


def _prefetch(
    code: Writer, keys: str, start: ir.Value, stride: ir.Value, scale: int, column: ir.Value,
    group: int, lanes: int,
) -> None:  # fmt: skip
    """Prefetch the line at `column` of some rows: further columns of the line get the others."""
    every = LINE // (group * float32.bytes)
    offset = code.let(start + (column / group & every - 1) * stride + column)
    for row in range(0, lanes, every):
        code.emit(ir.Prefetch(keys, (offset + stride * row) * scale, far=True))


def _panel(
    code: Writer, rows: list[Buffer], target: Buffer, words: int, each: int,
    prefetch: Callable[[ir.Value, int, int], None],
) -> None:  # fmt: skip
    """Pack a panel of rows, four words of `each` elements at a time, then the remainder."""
    whole = words // GROUP * GROUP
    if whole:
        with code.range(0, whole, GROUP) as column:
            prefetch(column * each, GROUP * each, len(rows))
            _columns(code, rows, column, GROUP, target, each)
    if whole < words:
        _columns(code, rows, constant(whole), words - whole, target, each)


def _columns(
    code: Writer, rows: list[Buffer], column: ir.Value, count: int, target: Buffer, each: int
) -> None:
    """Store `count` <= 4 words of every row, of `each` elements, as `count` vectors of a panel."""
    mask = None if count == GROUP else first_lanes(constant(count * each), GROUP * each)
    loads = [row.load(column * each, GROUP * each, mask) for row in rows]
    if each == 2:
        loads = [ir.Bitcast(ir.Type(float32, GROUP), for_pairs(value)) for value in loads]
    gathered = [concatenated_vectors(loads[i::GROUP]) for i in range(GROUP)]
    vector = ir.Type(float32, len(rows))
    for d, value in enumerate(transposed_block(vector, gathered, code.let)[:count]):
        target.store((column + d) * len(rows), value)


def copy_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int,
    pairs: bool, narrow: bool,
) -> tuple[ir.Step, ...]:  # fmt: skip
    """Return steps that fill "packed_keys" from columns of contiguous keys, `stride` apart."""
    code = Writer("keys_")
    source, target = Buffer(code, keys, _dtype(narrow)), Buffer(code, "packed_keys", float32)
    with code.range(0, LOOP.panels) as panel:
        first = code.let(panel * lanes)
        inside = code.let(first_lanes((count - first), lanes))
        each = 2 if pairs else 1
        with code.range(0, depth // each) as row:
            at = [start + (row * each + i) * stride + first for i in range(each)]
            vectors = [source.load(a, lanes, inside) for a in at]
            vector = pair_words(*vectors) if pairs else vectors[0]
            target.store((panel * (depth // each) + row) * lanes, vector)
    return code.written


def copy_values(
    values: str, start: ir.Value, stride: ir.Value, count: ir.Value, width: int, lanes: int,
    pairs: bool, narrow: bool,
) -> tuple[ir.Step, ...]:  # fmt: skip
    """Return steps that fill "packed_values" with rows of `width`, zero-padded to vectors.

    With `pairs`, words hold elements of two rows; the last row may be paired with zeros.
    """
    code, each = Writer("values_"), 2 if pairs else 1
    source, target = Buffer(code, values, _dtype(narrow)), Buffer(code, "packed_values", float32)
    with code.range(0, count, each) as row:
        own = source.part(code.let(row * stride + start))
        packed = target.part(code.let(row / each * (-(-width // lanes) * lanes)))
        second = code.let((row + 1 < count).spread(lanes)) if pairs else None
        for line in range(0, width * each, LINE // float32.bytes) if pairs else ():
            code.emit(ir.Prefetch(values, (row + VALUES_AHEAD) * stride + start + line, far=True))
        for column in range(0, width, lanes):
            remaining = width - column
            mask = None if remaining >= lanes else first_lanes(constant(remaining), lanes)
            vector = own.load(column, lanes, mask)
            if second is not None:
                both = second if mask is None else second & mask
                vector = pair_words(vector, own.load(stride + column, lanes, both))
            packed.store(column, vector)
    return code.written


def pack_queries(
    queries: str, start: ir.Value, stride: ir.Value, depth: int, lanes: int, narrow: bool
) -> tuple[ir.Step, ...]:
    """Return steps that fill "packed_queries" with the tile's rows as bfloat16."""
    code = Writer("queries_")
    source, target = Buffer(code, queries, _dtype(narrow)), Buffer(code, "packed_queries", bfloat16)
    with code.range(0, LOOP.tile) as row:
        own, packed = (b.part(code.let(row * s + a)) for b, s, a in
                       ((source, stride, start), (target, depth, 0)))  # fmt: skip
        for column in range(0, depth, lanes):
            remaining = depth - column
            mask = None if remaining >= lanes else first_lanes(constant(remaining), lanes)
            packed.store(column, _as_element(own.load(column, lanes, mask)), mask)
    return code.written


def _dtype(narrow: bool) -> DType:
    return bfloat16 if narrow else float32


def _as_element(value: ir.Value) -> ir.Value:
    return value if value.dtype == bfloat16 else for_pairs(value)


def pair_words(first: ir.Value, second: ir.Value) -> ir.Value:
    """Return words of two bfloat16 per lane, the first one in the lower half."""
    low, high = (_as_element(value).bits(uint16) for value in (first, second))
    lanes = low.type.lanes
    order = tuple(lane // 2 + lane % 2 * lanes for lane in range(2 * lanes))
    return ir.Bitcast(ir.Type(float32, lanes), shuffle(low, high, order))


# ---- products ----------------------------------------------------------------------------------


def tile_rows(registers: int) -> int:
    """Return the rows of the largest tile of two vectors whose sums stay in registers."""
    return 12 if registers >= 32 else 6


@lru_cache(maxsize=8)
def tile_library(lanes: int, rows: int, pairs: bool) -> ir.Library:
    """Return a library with one function for each number of rows up to `rows`."""
    name = f"attention{'_pairs' if pairs else ''}_{lanes}x{rows}"
    functions = partial(_functions, name, lanes, rows, pairs)
    return ir.Library(name, functions, name, portable=not pairs)


def multiply(
    library: str, max_rows: int, rows: ir.Value, a: ir.Value, b: ir.Value, c: str, *scalars: Like
) -> ir.Step:
    """Call the function for a number of rows, at most `max_rows`, with `POINTERS` and `SCALARS`."""
    zero = constant(0)
    arguments = (a, b, ir.Address(c, zero), *map(zero.like, scalars))
    cases = tuple((m, (ir.Call(f"{library}_{m}", arguments),)) for m in range(1, max_rows + 1))
    return ir.Switch(rows, cases)


def _functions(library: str, lanes: int, rows: int, pairs: bool) -> tuple[ir.Function, ...]:
    return tuple(_tiles(f"{library}_{m}", m, rows, lanes, pairs) for m in range(1, rows + 1))


def _widths(rows: int, max_rows: int) -> tuple[int, ...]:
    """The vectors of tiles: 4 where the sums of few rows leave registers for them, or 2; then 1.

    A row has a sum for each vector; fewer than 8 sums wait for each other.
    """
    return (4, 2, 1) if 2 * rows <= max_rows else (2, 1)


def _tiles(name: str, rows: int, max_rows: int, lanes: int, pairs: bool) -> ir.Function:
    code = Writer()
    a, b, c = (Buffer(code, pointer, float32) for pointer in POINTERS)
    count, a_row, b_row, b_panel, c_row, vectors = (ir.Var(ir.INDEX, scalar) for scalar in SCALARS)
    starts = [code.let(a_row * i) for i in range(rows)]
    add = dot_pairs if pairs else fma

    def tile(panel: ir.Value, width: int) -> None:
        """Compute the sums of `rows` x `width` vectors, and store them to c.

        One k-step per iteration: in longer bodies LLVM hoists loads until registers run out.
        """
        offsets = [code.variable((panel + j) * b_panel) for j in range(width)]
        zero = constant(0, float32, lanes)
        sums = [[code.variable(zero) for _ in range(width)] for _ in range(rows)]
        with code.range(0, count) as k:
            right = [b.load(offset(), lanes) for offset in offsets]
            for start, totals in zip(starts, sums):
                left = code.let(a[start + k].spread(lanes))
                for total, vector in zip(totals, right):
                    total.set(add(left, vector, total()))
            for offset in offsets:
                offset += b_row
        for i, totals in enumerate(sums):
            for j, total in enumerate(totals):
                c.store(c_row * i + panel * lanes + j * lanes, total())

    first: ir.Value = constant(0)
    for width in _widths(rows, max_rows):
        end = code.let(vectors & -width)
        with code.range(first, end, width) as panel:
            tile(panel, width)
        first = end
    pointers = (ir.Pointer(pointer, float32) for pointer in POINTERS)
    return ir.Function(name, (*pointers, *map(ir.Scalar, SCALARS)), code.written, public=True)

"""The k largest or smallest elements along an axis, in order, with their indices.

A row is read once: blocks of elements are compared with the worst element kept so far, and only
candidates are processed further. A small k is kept sorted by insertion. For a large k, candidates
are appended to a buffer that is sorted when full; then its best k are kept. Both are linear in the
row. Few long rows are split into parts, and the best of all parts are sorted. Columns and short
rows take one lane each (`top_across.py`).

NaN is the largest, as in numpy's order; of equal elements the first one wins.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import constant, least
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines import radix
from anydim.compiler.kernels.routines.arguments import axis_of, expect_ordered, sizes_of
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import key_type, order_key
from anydim.compiler.kernels.routines.parallel_sort import MANY
from anydim.compiler.kernels.routines.radix import Pairs, insert
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import Rows, fill_pairs, length_guards, write_sorted
from anydim.compiler.kernels.routines.sort import order
from anydim.compiler.kernels.routines.top_across import MOST, Across, fits
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import (
    NEVER,
    Box,
    Condition,
    Guard,
    Size,
    as_size,
    at_least,
    at_most,
    maximum,
    minimum,
    settle,
    simplify,
)

SMALL = 24  # largest k that is kept sorted by insertion
EXTRA = 256  # elements of the buffer beyond 2 k
BLOCK = 64  # elements compared at once, clamped to the longest vector
PARTS, PART = 16, 1 << 17  # maximum parts of a long row; minimum elements of a part


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    expect_ordered("top_k", types[0])
    axis = axis_of("top_k", attributes["axis"], types[0].rank)
    shape = list(types[0].shape)
    shape[axis] = sizes_of("top_k", "k", [attributes["k"]])[0]
    return TensorType(types[0].dtype, tuple(shape)), TensorType(int64, tuple(shape))


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    length, k = Rows.of("top_k", types, attributes).length, as_size(attributes["k"])
    return (
        Guard(as_size(0), "<=", k, "top_k: k is 0 or more"),
        Guard(k, "<=", length, "top_k: k is at most the size of the axis"),
        *length_guards("top_k", length, box),
    )


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    axis, k = attributes["axis"], as_size(attributes["k"]).evaluate(sizes)
    indices = order(arrays[0], axis, attributes["largest"]).take(range(k), axis)
    return numpy.take_along_axis(arrays[0], indices, axis), indices


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    k, rows = simplify(as_size(attributes["k"]), box), Rows.of("top_k", types, attributes)
    results = Rows(rows.outer, k, rows.inner)
    top = TopK(types[0].dtype, bool(attributes["largest"]), rows, results, box, machine)
    launches = [(top.across, top.side_by_side), (top.alone, top.short),
                (top.wanted, top.parts_of_long), (top.wanted, top.join)]  # fmt: skip
    made = tuple(launch() for wanted, launch in launches if wanted != NEVER)
    return Steps(made, top.temporaries() if top.wanted != NEVER else ())


@dataclass(frozen=True)
class TopK:
    """The rows of the input and of the results, and the requested order."""

    dtype: DType
    largest: bool
    rows: Rows
    results: Rows
    box: Box
    machine: Machine

    @property
    def k(self) -> Size:
        return self.results.length

    @property
    def parts(self) -> Size:
        return minimum(PARTS, self.rows.length // maximum(PART, 2 * self.k))

    @property
    def across(self) -> Condition:
        """Where rows are processed in lanes."""
        few = self.k.constant is not None and 0 < self.k.constant <= MOST
        return settle(fits(self.rows), self.box) if few else NEVER

    @property
    def wanted(self) -> Condition:
        """Where rows are split into parts."""
        few = at_most(self.rows.count, MANY - 1)
        return settle(at_least(self.parts, 2) & few & ~self.across, self.box)

    @property
    def alone(self) -> Condition:
        """Where rows are processed one after the other."""
        return settle(~self.wanted & ~self.across, self.box)

    @property
    def capacity(self) -> Size:
        """Capacity of the buffer before it is sorted."""
        return minimum(2 * self.k + EXTRA, self.rows.length)

    def short(self) -> Launch:
        """Row after row."""
        code = Code("top_k", self.machine, self.box)
        best = _BestOfRow(code, self, self.alone.where(self.capacity, 0))
        with code.range(code.start, code.stop) as row:
            start = self.rows.start(code, row)
            x = code.input("x0", self.dtype).part(start)
            best.find(x, constant(0), code.size(self.rows.length))
            self._results(code, row, x, best.pairs.part(best.begin()))
        rows = self.alone.where(self.rows.count, 0)
        return code.launch(rows, self.rows.elements, 1, "the best of each row")

    def side_by_side(self) -> Launch:
        """One row per lane."""
        code = Code("top_k_across", self.machine, self.box)
        assert self.k.constant is not None
        x = code.input("x0", self.dtype)
        across = Across(code, x, self.rows, self.k.constant, self.largest)
        with code.range(code.start, code.stop) as unit:
            across.find(unit)
        units = self.across.where(across.units, 0)
        return code.launch(units, self.rows.elements, 1, "one row per lane")

    def _results(self, code: Code, row: ir.Value, x: Buffer, pairs: Pairs) -> None:
        start, stride = self.results.start(code, row), self.rows.stride(code)
        write_sorted(code, x, stride, start, pairs, 0, code.size(self.k))

    # ---- long rows -----------------------------------------------------------------------------

    def temporaries(self) -> tuple[Tensor, ...]:
        """Pairs of the best elements of all parts of a row, twice that many for sorting."""
        elements = self.wanted.where(self.rows.count * self.parts * self.k * 2, 0)
        elements = simplify(elements, self.box)
        return (
            Tensor("keys", TensorType(key_type(self.dtype), (elements,))),
            Tensor("indices", TensorType(uint32, (elements,))),
        )

    def _pairs(self, code: Code, row: ir.Value, counts: Buffer) -> Pairs:
        keys = code.output("keys", key_type(self.dtype))
        block = code.let(row * code.size(2 * self.parts * self.k))
        return Pairs(keys, code.output("indices", uint32), counts).part(block)

    def parts_of_long(self) -> Launch:
        """The best of each part."""
        code = Code("top_k_parts", self.machine, self.box)
        best = _BestOfRow(code, self, self.wanted.where(self.capacity, 0))
        parts, length, k = (code.size(s) for s in (self.parts, self.rows.length, self.k))
        with code.range(code.start, code.stop) as item:
            row, part = code.let(item // parts), code.let(item % parts)
            x = code.input("x0", self.dtype).part(self.rows.start(code, row))
            low, high = (code.let((part + n) * length // parts) for n in (0, 1))
            best.find(x, low, high)
            found = best.pairs.part(best.begin())
            target = self._pairs(code, row, best.pairs.counts).part(code.let(part * k))
            with code.range(0, k) as i:
                target.put(i, found.keys[i], found.indices[i])
        parallel = self.wanted.where(self.rows.count * self.parts, 0)
        return code.launch(parallel, self.rows.elements, 1, "the best of each part of a long row")

    def join(self) -> Launch:
        """The best of all parts."""
        code = Code("top_k_join", self.machine, self.box)
        counts = radix.counters(code, key_type(self.dtype))
        with code.range(code.start, code.stop) as row:
            pairs = self._pairs(code, row, counts)
            begin = radix.sort(code, pairs, code.size(self.parts * self.k))
            x = code.input("x0", self.dtype).part(self.rows.start(code, row))
            self._results(code, row, x, pairs.part(begin))
        work = self.rows.count * self.parts * self.k
        return code.launch(self.wanted.where(self.rows.count, 0), work, 1, "the best of all parts")


class _BestOfRow:
    """Finds the best k of a range of a row, as `pairs` from `begin` on."""

    def __init__(self, code: Code, top: TopK, capacity: Size) -> None:
        self.code, self.top, self.k = code, top, code.size(top.k)
        self.pairs = Pairs.scratch(code, key_type(top.dtype), capacity + BLOCK)
        self.block = code.machine.at_most(BLOCK)
        self.capacity = code.size(top.capacity)
        contiguous = top.rows.contiguous
        self.copy = None if contiguous else code.scratch(top.dtype, top.rows.length)

    def find(self, x: Buffer, low: ir.Value, high: ir.Value) -> None:
        """Search elements low ... high of the row that starts at x[0]."""
        code = self.code
        self.begin = code.variable(0)
        self.worst_key = code.variable(0, self.pairs.keys.dtype)
        self.worst = code.variable(0, self.top.dtype)
        if self.copy is not None:
            x = self._copy_row(x, low, high)
        with code.when(self.k > 0):
            known = self.top.k.constant
            if known is not None:
                self._insert(x, low, high) if known <= SMALL else self._gather(x, low, high)
                return
            with code.when(self.k <= SMALL):
                self._insert(x, low, high)
            with code.otherwise():
                self._gather(x, low, high)

    def _copy_row(self, x: Buffer, low: ir.Value, high: ir.Value) -> Buffer:
        """The elements of the row, made contiguous."""
        assert self.copy is not None
        stride = self.top.rows.stride(self.code)
        with self.code.range(low, high) as i:
            self.copy[i] = x[i * stride]
        return self.copy

    def _key(self, x: Buffer, i: ir.Value) -> ir.Value:
        return self.code.let(order_key(x[i], self.top.largest))

    def _promising(self, x: Buffer, i: ir.Value) -> ir.Value:
        """A mask of the elements of a block that may beat the worst one kept."""
        elements, worst = x.load(i, self.block), self.worst()
        return ~(elements <= worst if self.top.largest else elements >= worst)

    # ---- a small k -----------------------------------------------------------------------------

    def _insert(self, x: Buffer, low: ir.Value, high: ir.Value) -> None:
        code, pairs = self.code, self.pairs
        full = code.let(low + self.k)
        with code.range(low, full) as i:
            insert(code, pairs, code.let(i - low), self._key(x, i), i.as_(uint32))
        self._set_worst(x)

        def consider(i: ir.Value) -> None:
            key = self._key(x, i)
            with code.when(key < self.worst_key()):
                insert(code, pairs, code.let(self.k - 1), key, i.as_(uint32))
                self._set_worst(x)

        # Set bits of comparison masks: 141 us for 64 of a million, by elements 470.
        whole = code.let(full + (high - full & -self.block))
        with code.range(full, whole, self.block) as i, code.each(self._promising(x, i)) as lane:
            consider(code.let(i + lane))
        with code.range(whole, high) as e:
            consider(e)

    def _set_worst(self, x: Buffer) -> None:
        """Update the threshold: the last of the k kept."""
        last = self.code.let(self.begin() + self.k - 1)
        self.worst_key.set(self.pairs.keys[last])
        self.worst.set(x[self.pairs.indices[last].as_(int64)])

    # ---- a large k -----------------------------------------------------------------------------

    def _gather(self, x: Buffer, low: ir.Value, high: ir.Value) -> None:
        code, pairs = self.code, self.pairs
        count = code.variable(least(high - low, self.capacity))
        following = code.variable(low + count())
        fill_pairs(code, x, constant(1), low, count(), pairs.part(0 - low), self.top.largest)
        more = code.variable(True)
        with code.loop(lambda: more()):
            self.begin.set(radix.sort(code, pairs, count()))
            more.set(following() < high)
            with code.when(more()):
                self._set_worst(x)
                with code.when(self.begin() > 0), code.range(0, self.k) as i:
                    pairs.move(self.begin() + i, i)
                self.begin.set(0)
                count.set(self.k)
                self._scan(x, high, count, following)

    def _scan(self, x: Buffer, high: ir.Value, count: Variable, following: Variable) -> None:
        """Append candidates until the buffer is full or the row ends."""
        code, capacity = self.code, self.capacity
        with code.loop(lambda: (following() < high) & (count() <= capacity)):
            i = following()
            with code.when(i + self.block <= high), code.each(self._promising(x, i)) as lane:
                self._append(x, code.let(i + lane), count)
            with code.otherwise(), code.range(i, high) as e:
                self._append(x, e, count)
            following.set(i + self.block)

    def _append(self, x: Buffer, i: ir.Value, count: Variable) -> None:
        """Every element is stored; the counter advances only for candidates, so others are
        overwritten."""
        key = self._key(x, i)
        self.pairs.put(count(), key, i.as_(uint32))
        count += (key < self.worst_key()).as_(int64)


TOP_K = Routine((1, 1), infer, evaluate, lower, guards)

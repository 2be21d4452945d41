"""The few largest or smallest elements of many rows at once: one row per lane, results in
registers.

    k = 2       element e of a row is better than     then the best two are
                both                                  e, first
                the second                            first, e
                neither                               first, second

Adjacent columns are loaded as vectors; short rows are gathered lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import constant, iota, least, select
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import key_type, order_key
from anydim.compiler.kernels.routines.rows import FEWEST, Rows, lanes_of
from anydim.sizes import Condition, Size, at_least, at_most, ceil_div

# The best of many rows or columns stay in registers: 2.39 -> 0.44.
MOST = 8  # largest k held in registers
SHORT = 32  # elements of the longest row that is processed in a lane


def fits(rows: Rows) -> Condition:
    """Where there are many adjacent columns, or many short rows."""
    if rows.contiguous:
        return at_least(rows.count, FEWEST) & at_most(rows.length, SHORT)
    return at_least(rows.inner, FEWEST)


@dataclass(frozen=True)
class Across:
    """Finds the best k of the rows of x; writes them to y0 and their indices to y1."""

    code: Code
    x: Buffer
    rows: Rows
    k: int
    largest: bool

    @property
    def lanes(self) -> int:
        return lanes_of(self.code, self.x.dtype)

    @property
    def units(self) -> Size:
        """The number of vectors of rows."""
        if self.rows.contiguous:
            return ceil_div(self.rows.count, self.lanes)
        return self.rows.outer * ceil_div(self.rows.inner, self.lanes)

    def find(self, unit: ir.Value) -> None:
        """The best of the rows of a vector."""
        code, lanes, k = self.code, self.lanes, self.k
        step = self.rows.stride(code)
        if self.rows.contiguous:
            first = code.let(unit * lanes)
            remaining, target = code.size(self.rows.count) - first, first * k
            starts = code.let((iota(lanes) + first) * code.size(self.rows.length))
        else:
            blocks = code.size(ceil_div(self.rows.inner, lanes))
            block, column = code.let(unit // blocks * step), code.let(unit % blocks * lanes)
            remaining, target = step - column, block * k + column
            start = code.let(block * code.size(self.rows.length) + column)
            starts = code.let(iota(lanes) + start)
        remaining, target = code.let(remaining), code.let(target)
        there = code.let(iota(lanes) < remaining)

        def row(i: ir.Value) -> ir.Value:
            if self.rows.contiguous:
                return self.x.gather(starts + i, there)
            return self.x.load(start + i * step, lanes, there)

        indices = [code.let(found().as_(int64)) for found in self._best(row)]
        values = [self.x.gather(starts + index * step, there) for index in indices]
        for name, results in (("y0", values), ("y1", indices)):
            y = code.output(name, results[0].dtype).part(target)
            if self.rows.contiguous and k > 1:
                self._store_transposed(y, results, least(remaining, lanes))
                continue
            for number, result in enumerate(results):
                y.store(number * step, result, there)

    def _best(self, row: Callable[[ir.Value], ir.Value]) -> list[Variable]:
        """The indices of the best, best first; `row` loads an element of each row."""
        code, kept = self.code, range(self.k)
        zeros = (constant(0, dtype, self.lanes) for dtype in (key_type(self.x.dtype), uint32))
        keys, indices = ([code.variable(zero) for _ in kept] for zero in zeros)

        def insert(i: ir.Value, known: int) -> None:
            """Insert into those that are known; later elements do not beat equal ones."""
            key = code.let(order_key(row(i), self.largest))
            better = [code.let(key < each()) for each in keys[:known]]
            for kind, new in ((keys, key), (indices, i.as_(uint32).spread(self.lanes))):
                old = [each() for each in kind]
                for rank in kept[: known + 1]:
                    found = select(better[rank - 1], old[rank - 1], new) if rank else new
                    kind[rank].set(
                        select(better[rank], found, old[rank]) if rank < known else found
                    )

        for number in kept:
            insert(constant(number), number)
        with code.range(self.k, code.size(self.rows.length)) as i:
            insert(i, self.k)
        return indices

    def _store_transposed(self, y: Buffer, results: Sequence[ir.Value], count: ir.Value) -> None:
        """Store the results of `count` rows, one row after the other."""
        kept = self.code.stack(y.dtype, self.k * self.lanes)
        for number, result in enumerate(results):
            kept.store(number * self.lanes, result)
        with self.code.range(0, self.code.let(count)) as row:
            for number in range(self.k):
                y[row * self.k + number] = kept[row + number * self.lanes]

"""The body of an attention kernel: a tile of queries, a running softmax, blocks of keys.

A work-item computes some scores of a block, several rows and keys, and then some columns of the
result in the same rows. Queries, keys and values are copied to local memory with coalesced
accesses; the keys of the next block are copied while this block's values are multiplied. The
running maximum and the sums that depend on it are rescaled when a block has a larger score (Milakov
and Gimelshein, Online normalizer calculation for softmax, 2018).
"""

from __future__ import annotations

from functools import reduce
from itertools import product as pairs_of
from math import gcd

from anydim.base.dtypes import DType, float32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention_form import AttentionForm
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work, remainder
from anydim.compiler.kernels.gpu.shared_memory_copies import (
    CopyLoops,
    Factor,
    LocalLayout,
    TileCopy,
)
from anydim.compiler.kernels.ir import apply, constant, convert, fma, least, number, select
from anydim.compiler.kernels.matmul.product_axes import Factor as Tensor
from anydim.lang.tree import Axis, Read
from anydim.lang.tree.affine import to_expr
from anydim.sizes import ceil_div

_START, _ITEM, _ZERO = ir.START, ir.Item(), constant(0)
_FLOAT = ir.Type(float32)
_MINUS_INFINITY = number(float32, float("-inf"))
_STEP = 4  # elements that a work-item loads from local memory at a time
_VECTOR = 16  # bytes
QUERIES, KEYS, VALUES, SHARES, TOPS = "queries", "keys", "values", "shares", "tops"


@dataclass(frozen=True)
class LocalArray:
    """An array of local memory: `rows` rows, `pitch` elements apart."""

    name: str
    dtype: DType
    rows: int
    pitch: int


@dataclass(frozen=True)
class Tile:
    """A work-group of `items`, a grid of `across` columns, computes `rows` x `columns` of a result.

    A block has `keys` keys; local memory holds `depth` elements of each query and key at a time.
    """

    items: int
    rows: int
    keys: int
    across: int
    depth: int
    columns: int

    @property
    def down(self) -> int:
        return self.items // self.across

    @property
    def own_rows(self) -> int:
        return self.rows // self.down

    @property
    def own_keys(self) -> int:
        return self.keys // self.across

    @property
    def own_columns(self) -> int:
        """Columns of a work-item: 1, 2, or a multiple of the elements that it loads at a time."""
        own = -(-self.columns // self.across)
        return own if own <= 2 else _round_up(own, _STEP)

    def locals(self, queries: DType, keys: DType, values: DType) -> list[ir.Local]:
        """Return the arrays of local memory, for factors of these types."""
        arrays = (self.queries(queries), self.keys_of(keys), self.values(values))
        return [
            *(ir.Local(each.name, each.dtype, each.rows * each.pitch) for each in arrays),
            ir.Local(SHARES, float32, self.rows * _pitch(self.keys, float32)),
            ir.Local(TOPS, float32, self.rows * self.across),
        ]

    def queries(self, dtype: DType) -> LocalArray:
        return LocalArray(QUERIES, dtype, self.rows, _pitch(self.padded_depth(dtype), dtype))

    def keys_of(self, dtype: DType) -> LocalArray:
        return LocalArray(KEYS, dtype, self.keys, _pitch(self.padded_depth(dtype), dtype))

    def values(self, dtype: DType) -> LocalArray:
        return LocalArray(VALUES, dtype, self.keys, self.own_columns * self.across)

    def padded_depth(self, dtype: DType) -> int:
        """Return the elements of a row of queries or keys, padded after `depth`."""
        return _round_up(self.depth, max(_STEP, _VECTOR // dtype.bytes))


def _round_up(count: int, of: int) -> int:
    return -(-count // of) * of


def _pitch(count: int, dtype: DType) -> int:
    """Return the row stride in elements: an odd number of vectors, to avoid bank conflicts."""
    several = _VECTOR // dtype.bytes
    return (-(-count // several) | 1) * several


def _larger(left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the larger value; it may lose a NaN, which the power of its own score restores."""
    larger: ir.Value = apply("fast_max", left, right)
    return larger


class TileWriter:
    """Writes the steps of a work-item for one shape of tile."""

    def __init__(
        self, work: Work, outside: ScalarLowering, form: AttentionForm, tile: Tile
    ) -> None:
        self.work, self.outside, self.form, self.tile = work, outside, form, tile
        self.kinds = [work.types[f.tensor].dtype for f in (form.queries, form.keys, form.values)]
        self.locals = tile.locals(*self.kinds)
        depth = form.depth.extent.constant
        assert depth is not None  # guaranteed by the form
        self.whole = depth <= tile.depth  # queries are loaded once
        self.async_copies = work.context.machine.warps  # copies are asynchronous

    def body(self) -> None:
        """Emit the whole body."""
        work, form, tile = self.work, self.form, self.tile
        self._begin()
        begun = work.here
        self.keys, self.queries = (work.sizes.value(a.extent) for a in (form.key, form.query))
        self._registers()
        chunk = work.fresh("chunk")
        fillings = self._fillings(_ZERO if self.whole else ir.Var(ir.INDEX, chunk))
        if self.whole:
            fillings[QUERIES].write(_ZERO, 0)
            self._copy_and_commit(fillings[KEYS], _ZERO)
        with work.range(0, self.keys, tile.keys) as first:
            self._scores(fillings, first, chunk)
            self._partial_tops()
            if self.whole:
                following = work.let(first + tile.keys)
                with work.when(following < self.keys):
                    fillings[KEYS].write(following, 0)
                self._commit()
            self._shares()
            self._wait_for_copies(1 if self.whole else 0)
            self._add_values()
        self._finish()
        work.take(self.scope.steps, begun)

    # ---- before all blocks ---------------------------------------------------------------------

    def _begin(self) -> None:
        """Compute the tile of the work-group, and the rows and columns of the work-item."""
        work, form, tile = self.work, self.form, self.tile
        slices, down = (
            work.sizes.value(ceil_div(extent, count))
            for extent, count in (
                (form.width.extent, tile.columns), (form.query.extent, tile.rows),
            )
        )  # fmt: skip
        outer, part = work.let(quotient(_START, slices)), work.let(remainder(_START, slices))
        self.column0 = work.let(part * tile.columns)
        self.row0 = work.let(work.let(remainder(outer, down)) * tile.rows)
        batch = work.let(quotient(outer, down))
        self.scope = self.outside.inner(work.indices(batch, form.batch))
        self.item_column = work.let(remainder(_ITEM, tile.across))
        above = work.let(quotient(_ITEM, tile.across))
        self.rows = [work.let(above + i * tile.down) for i in range(tile.own_rows)]

    def _registers(self) -> None:
        """Declare the registers of a work-item: maximum, total and sums of each row."""
        fresh, tile = self.work.fresh, self.tile
        rows, keys, columns = map(range, (tile.own_rows, tile.own_keys, tile.own_columns))
        self.tops, self.totals = [fresh("top") for _ in rows], [fresh("total") for _ in rows]
        self.raw = {at: fresh("score") for at in pairs_of(rows, keys)}
        self.sums = {at: fresh("sum") for at in pairs_of(rows, columns)}
        for name in self.tops:
            self.work.emit(ir.Declare(name, _MINUS_INFINITY))
        for name in (*self.totals, *self.sums.values()):
            self.work.emit(ir.Declare(name, number(float32, 0)))

    def _fillings(self, chunk: ir.Value) -> dict[str, TileCopy]:
        """Return the copies of queries, keys and values to local memory."""
        form, tile = self.form, self.tile
        of_queries, of_keys, of_values = self.kinds

        def filling(
            tensor: Tensor, array: LocalArray, own: Axis, steps: Axis,
            first: ir.Value, width: int, depth: int, along_depth: bool = False,
        ) -> TileCopy:  # fmt: skip
            read = Read(tensor.tensor, (to_expr(tensor.address),), flat=True)
            along = tensor.address.stride(steps.name).constant == 1
            factor = Factor(read, array.dtype, (own,), along)
            layout = LocalLayout(
                array.name, factor, first, own.extent, width, depth, along_depth, array.pitch
            )
            around = CopyLoops(self.work, self.scope, (steps,), steps.extent, tile.items)
            return TileCopy(around, layout)

        return {
            QUERIES: filling(
                form.queries, tile.queries(of_queries), form.query, form.depth, self.row0,
                tile.rows, tile.padded_depth(of_queries), along_depth=True,
            ),
            KEYS: filling(
                form.keys, tile.keys_of(of_keys), form.depth, form.key, chunk,
                tile.padded_depth(of_keys), tile.keys,
            ),
            VALUES: filling(
                form.values, tile.values(of_values), form.width, form.key, self.column0,
                tile.own_columns * tile.across, tile.keys,
            ),
        }  # fmt: skip

    def _copy_and_commit(self, filling: TileCopy, first: ir.Value) -> None:
        filling.write(first, 0)
        self._commit()

    def _commit(self) -> None:
        if self.async_copies:
            self.work.emit(ir.CopiesEnd())

    def _wait_for_copies(self, pending: int = 0) -> None:
        """Wait until the copies of all work-items are visible, except the last `pending` groups."""
        if self.async_copies:
            self.work.emit(ir.CopiesWait(pending))
        self.work.emit(ir.Barrier())

    # ---- a block of keys -----------------------------------------------------------------------

    def _scores(self, fillings: dict[str, TileCopy], first: ir.Value, chunk: str) -> None:
        """Compute the scores of a work-item; starts the copy of the block's values."""
        work = self.work
        for name in self.raw.values():
            work.emit(ir.Declare(name, number(float32, 0)))
        if self.whole:
            self._wait_for_copies()
            self._copy_and_commit(fillings[VALUES], first)
            self._multiply()
        else:
            depth = work.sizes.value(self.form.depth.extent)
            with work.range(0, depth, self.tile.depth, chunk) as at:
                work.emit(ir.Barrier())
                fillings[QUERIES].write(at, 0)
                self._copy_and_commit(fillings[KEYS], first)
                self._wait_for_copies()
                self._multiply()
            self._copy_and_commit(fillings[VALUES], first)
        self._apply_score(first)

    def _multiply(self) -> None:
        """Add products of queries and keys, in the order of the depth."""
        work, tile = self.work, self.tile
        of_queries, of_keys, _ = self.kinds
        with work.range(0, tile.padded_depth(of_keys), _STEP) as k:
            a = [self._vector(tile.queries(of_queries), row, k) for row in self.rows]
            keys = [self._key(j) for j in range(tile.own_keys)]
            b = [self._vector(tile.keys_of(of_keys), key, k) for key in keys]
            for n in range(_STEP):
                for (i, j), name in self.raw.items():
                    work.emit(ir.Assign(name, fma(a[i][n], b[j][n], ir.Get(_FLOAT, name))))

    def _key(self, j: int) -> ir.Value:
        """Return a key of the block: adjacent work-items have adjacent keys."""
        return self.item_column + j * self.tile.across

    def _vector(
        self, array: LocalArray, row: ir.Value, at: ir.Value, count: int = _STEP
    ) -> list[ir.Value]:
        """Load consecutive elements of a row of local memory."""
        kind, start = ir.Type(array.dtype), row * array.pitch + at
        loads = [ir.Load(kind, array.name, start + n) for n in range(count)]
        return [self.work.let(convert(self.work.let(each), float32)) for each in loads]

    def _apply_score(self, first: ir.Value) -> None:
        """Compute scores from the products; keys out of bounds have the score -inf."""
        work, form, scores = self.work, self.form, []
        # indices out of bounds are clamped to the last row and key
        rows = [work.let(least(self.row0 + row, self.queries - 1)) for row in self.rows]
        for j in range(self.tile.own_keys):
            key = work.let(first + self._key(j))
            column = self.scope.inner({form.key.name: work.let(least(key, self.keys - 1))})
            steps: list[ir.Step] = []
            for i, row in enumerate(rows):
                name = self.raw[i, j]

                def score_of(read: Read, name: str = name) -> ir.Value | None:
                    return ir.Get(_FLOAT, name) if read.tensor == form.raw else None

                inner = column.inner(
                    {form.query.name: row}, local=score_of, answers=frozenset((form.raw,))
                )
                value = inner.value(form.score, float32)
                steps += [
                    *inner.steps,
                    ir.Assign(name, select(key < self.keys, value, _MINUS_INFINITY)),
                ]
            scores += [*column.steps, *steps]
        work.take(scores)

    def _partial_tops(self) -> None:
        """Store each work-item's maximum score of its rows, for the other work-items."""
        for i, row in enumerate(self.rows):
            own = [name for (at, _), name in self.raw.items() if at == i]
            scores: list[ir.Value] = [ir.Get(_FLOAT, name) for name in own]
            found = reduce(_larger, scores)
            offset = row * self.tile.across + self.item_column
            self.work.emit(ir.Store(TOPS, offset, found))
        self.work.emit(ir.Barrier())

    def _shares(self) -> None:
        """Compute the powers of the scores, and rescale the sums to the new maximum."""
        work, tile = self.work, self.tile
        pitch = _pitch(tile.keys, float32)
        for i, row in enumerate(self.rows):
            top, total = (ir.Get(_FLOAT, names[i]) for names in (self.tops, self.totals))
            parts = self._vector(
                LocalArray(TOPS, float32, tile.rows, tile.across), row, _ZERO, tile.across
            )
            found = work.let(reduce(_larger, parts, work.let(top)))
            shift = work.let(select(found.equals(_MINUS_INFINITY), number(float32, 0), found))
            scale = work.let(apply("exp_nonpositive", top - shift))
            work.emit(ir.Assign(top.name, found))
            work.emit(ir.Assign(total.name, total * scale))
            for (at, _), name in self.sums.items():
                if at == i:
                    work.emit(ir.Assign(name, ir.Get(_FLOAT, name) * scale))
            for j in range(tile.own_keys):
                share = apply("exp_nonpositive", ir.Get(_FLOAT, self.raw[i, j]) - shift)
                work.emit(ir.Store(SHARES, row * pitch + self._key(j), work.let(share)))

    def _add_values(self) -> None:
        """Add shares, and values weighted by shares, in the order of keys."""
        work, tile = self.work, self.tile
        shares = LocalArray(SHARES, float32, tile.rows, _pitch(tile.keys, float32))
        values, lanes = tile.values(self.kinds[2]), gcd(tile.own_columns, _STEP)
        with work.range(0, tile.keys, _STEP) as k:
            a = [self._vector(shares, row, k) for row in self.rows]
            for n in range(_STEP):
                b = [
                    value
                    for c in range(0, tile.own_columns, lanes)
                    for value in self._vector(values, k + n, self._column(c), lanes)
                ]
                for i, name in enumerate(self.totals):
                    work.emit(ir.Assign(name, ir.Get(_FLOAT, name) + a[i][n]))
                for (i, c), name in self.sums.items():
                    work.emit(ir.Assign(name, fma(a[i][n], b[c], ir.Get(_FLOAT, name))))

    def _column(self, c: int) -> ir.Value:
        """Return a column of the tile: adjacent work-items have adjacent vectors."""
        lanes = gcd(self.tile.own_columns, _STEP)
        return self.item_column * lanes + (c // lanes * lanes * self.tile.across + c % lanes)

    # ---- after all blocks ----------------------------------------------------------------------

    def _finish(self) -> None:
        """Store rows divided by the sum of their shares; 0 without keys."""
        work, form, tile = self.work, self.form, self.tile
        none, width = work.let(self.keys.equals(0)), work.sizes.value(form.width.extent)
        for i, local_row in enumerate(self.rows):
            row = work.let(self.row0 + local_row)
            with work.when(row < self.queries):
                for c in range(tile.own_columns):
                    column = work.let(self._column(c))
                    in_bounds = (column < tile.columns) & (self.column0 + column < width)
                    with work.when(in_bounds):
                        inner = self.scope.inner(
                            {form.query.name: row, form.width.name: self.column0 + column}
                        )
                        offset = inner.offset(form.output.address)
                        share = ir.Get(_FLOAT, self.sums[i, c]) / ir.Get(_FLOAT, self.totals[i])
                        value = select(none, number(float32, 0), share)
                        store = ir.Store(work.buffers[form.output.tensor], offset, value)
                        work.take([*inner.steps, store])

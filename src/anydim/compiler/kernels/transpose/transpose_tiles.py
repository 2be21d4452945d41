"""Square blocks of a transposed copy, transposed in registers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, index_sum, round_down
from anydim.compiler.kernels.codegen.register_transpose import PIECE, block_columns
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, select, variable, variables
from anydim.compiler.kernels.transpose.transpose_form import TransposeForm
from anydim.lang.tree.affine import Affine
from anydim.sizes import Size, product

_SQUARE, _PANEL = "square", "panel"
_LEAST_SQUARE = 8  # lanes; squares of 4 are no faster than masked squares of 8
# Strips of 64 lanes gain half as much (floats of 1 x 1000 x 1000: 0.91 to 1.14 -> 0.28 to 0.4).
STRIP = 256  # lanes written before the next rows: each row of a square is a store stream
_LINE, _WAY, _WAYS = 64, 4096, 8  # L1 cache: bytes of a line, bytes of a way, associativity


@dataclass(frozen=True)
class ChunkVariables:
    """Variables of a chunk: rows from `row0` to `row1`, `width` lanes from `lane_first` on.

    `source` and `target` are the offsets of its first element at row 0, `lane_step` is the distance
    of lanes in the source. `left` lanes remain from `lane0` on, `known` of them in bounds.
    """

    lane_first: ir.Var
    source: ir.Var
    target: ir.Var
    row0: ir.Var
    row1: ir.Var
    width: ir.Var
    lane_step: ir.Var


CHUNK = variables(ChunkVariables)


@dataclass(frozen=True)
class Squares:
    """Emits a chunk in square blocks: a block of rows, at one index of the outer axes.

    `vector` is the source vector type, with one lane per row of a square; `made` is the target
    dtype.
    """

    code: Writer
    form: TransposeForm
    context: Context
    made: DType
    vector: ir.Type

    @property
    def _copies(self) -> bool:
        return self.form.value == self.form.read

    @property
    def _panels(self) -> bool:
        """Whether a square may have too many rows for a set of the L1 cache."""
        return self.vector.lanes >= _WAYS and self._copies and self.form.inside is None

    @property
    def _panel_width(self) -> int:
        """A strip, plus the overlap of its last square."""
        return STRIP + self.vector.lanes

    @property
    def _wide(self) -> ir.Type:
        """The widest register of the source's dtype."""
        dtype = self.vector.dtype
        return ir.Type(dtype, self.context.machine.lanes(dtype))

    @property
    def _row_stride(self) -> ir.Value:
        """Distance between target rows."""
        return self._value(self.form.target.stride(self.form.row.name))

    def _value(self, size: Size) -> ir.Value:
        return self.context.sizes.value(size)

    # ---- squares -------------------------------------------------------------------------------

    def _declare_buffers(self) -> None:
        """Declare the buffer of a square whose elements are computed, and the panel."""
        dtype, lanes = self.vector.dtype, self.vector.lanes
        if not self._copies:
            self.code.emit(ir.Stack(_SQUARE, dtype, lanes**2))
        if self._panels:
            self.code.emit(ir.Stack(_PANEL, dtype, lanes * self._panel_width))

    def _squares(self) -> None:
        """The chunk in square blocks, one row of blocks after the other.

        The last block of an axis overlaps the one before, or is masked where the axis is shorter
        than a vector or guarded.
        """
        code, form, lanes = self.code, self.form, self.vector.lanes
        low, high = CHUNK.row0, CHUNK.row1
        width: ir.Value = CHUNK.width
        inside, whole = width, select(width >= lanes, width, 0)
        if form.inside is not None:
            known = self._at(form.inside) - CHUNK.lane_first
            inside = least(width, greatest(known, 0))
            whole = round_down(inside, lanes)
        inside = code.let(inside, "inside")
        end = code.let(select(high - low >= lanes, whole, 0), "whole")
        if self._panels:
            with code.when(self._is_crowded()):
                self._by_panels(low, high, end)
            with code.otherwise():
                self._whole(low, high, end)
        else:
            self._whole(low, high, end)
        with code.range(end, width, lanes, "lane0") as lane:
            remaining = code.let(width - lane, "left")
            code.let(inside - lane, "known")
            half = lanes // 2
            if half < _LEAST_SQUARE or form.inside is not None:
                self._last_lanes(low, high)
            else:
                with code.when(remaining <= half):
                    few = replace(self, vector=ir.Type(self.vector.dtype, half))
                    few._last_lanes(low, high)
                with code.otherwise():
                    self._last_lanes(low, high)

    def _whole(self, low: ir.Value, high: ir.Value, end: ir.Value) -> None:
        """Squares of lanes up to `end`: a strip of lanes, then the same lanes of the next rows."""
        code, lanes = self.code, self.vector.lanes
        with (
            code.range(0, end, STRIP, "strip") as at,
            code.overlapping(low, high, lanes, "row", "k"),
            code.range(at, least(end, at + STRIP), lanes, "lane") as lane,
        ):
            lane0 = lane if self.form.inside is not None else least(lane, end + -lanes)
            code.let(lane0, "lane0")
            self._square("k")

    def _is_crowded(self) -> ir.Value:
        """Whether the rows of a square map to one set of the L1 cache, which then evicts lines
        before they are complete.

        Where source rows are far apart too, or come from memory, panels take longer.
        """
        element_bytes, lanes = self.vector.dtype.bytes, self.vector.lanes
        apart = self._row_stride * element_bytes
        # Rows a multiple of a way (4,096 bytes) apart, up to a line more or less, share a set.
        rest = (apart + _LINE) & (_WAY * _WAYS // lanes - 1)
        same = (rest <= 2 * _LINE) & (apart > 2 * _LINE)
        axes = (*self.form.outer, self.form.row, self.form.lane)
        total = self._value(product(axis.extent for axis in axes) * element_bytes)
        limits = self.context.machine.limits
        near = CHUNK.lane_step * element_bytes <= limits.near_lane_bytes
        return same & near & (total <= limits.kept_source_bytes)

    def _by_panels(self, low: ir.Value, high: ir.Value, end: ir.Value) -> None:
        """As `_whole`, but each strip is assembled in a panel and written to its rows in whole
        lines."""
        code, lanes, wide, width = self.code, self.vector.lanes, self._wide, self._panel_width
        with code.range(0, end, STRIP, "strip") as at, code.range(low, high, lanes, "row") as row:
            code.let(least(row, high + -lanes), "k")
            first = code.let(least(at, end + -lanes), "first")
            length = code.let(least(end, at + STRIP) - first, "length")
            with code.overlapping(0, length, lanes, "lane", "place") as position:
                code.let(self._offsets(variable("k"), first + position)[0], "k_from")
                for each, column in enumerate(self._columns("k", edge=False, narrow=False)):
                    code.emit(ir.Store(_PANEL, position + each * width, column))
            whole = code.let(round_down(length, wide.lanes), "whole_lines")
            with code.range(row - variable("k"), lanes, name="number") as number:
                _, target = self._offsets(variable("k") + number, first)
                code.let(target, "to")
                for lane, last in code.blocks(0, whole, length, wide.lanes, name="lane"):
                    mask = first_lanes(length - lane, wide.lanes) if last else None
                    found = ir.Load(wide, _PANEL, number * width + lane, mask)
                    code.emit(ir.Store("y", variable("to") + lane, found, mask))

    def _last_lanes(self, low: ir.Value, high: ir.Value) -> None:
        """Lanes that do not fill a vector, or are guarded."""
        lanes = self.vector.lanes
        done = self._narrow(low, low + round_down(high - low, lanes))
        with self.code.range(done, high, lanes, "e"):
            self._square("e", edge=True)

    def _narrow(self, begin: ir.Value, squares: ir.Value) -> ir.Value:
        """Squares of all rows with fewer lanes than a vector; returns the end of the rows done.

        If target rows are adjacent, whole vectors are stored: the next row overwrites the excess of
        the previous one. The last square of a chunk is masked.
        """
        code, lanes = self.code, self.vector.lanes
        if self.form.inside is not None:
            return code.let(begin, "done")
        done, remaining = code.let(squares, "done"), variable("left")
        few = code.let(first_lanes(least(remaining, lanes), lanes), "few")
        if self._copies:
            # Overlapping whole vectors instead of masked ones: bytes 7.0 -> 3.0.
            packed, last = self._row_stride.equals(remaining), greatest(squares - lanes, begin)
            over = code.let(select(packed, last, begin), "over")
            with code.range(begin, over, lanes, "o"):
                self._square("o", narrow=True)
            begin = over
        with code.range(begin, done, lanes, "n"):
            self._square("n", narrow=True, mask=few)
        return done

    def _square(
        self, row: str, edge: bool = False, narrow: bool = False, mask: ir.Value | None = None
    ) -> None:
        """One square from `row` and lane0 on; at an edge, elements out of bounds are not accessed.

        A `narrow` one has all rows: for lanes past the end, the first one is read again. `mask`
        selects the stored lanes, where not all are.
        """
        code, lanes = self.code, self.vector.lanes
        source, target = self._offsets(variable(row), variable("lane0"))
        remaining = code.let(CHUNK.row1 - variable(row), f"{row}_left")
        code.let(source, f"{row}_from")
        target = code.let(target, f"{row}_to")
        columns = self._columns(row, edge, narrow)
        if not self._copies:
            self._compute_columns(row, columns, edge or narrow)
            return
        for number, column in enumerate(columns):
            at = target + self._row_stride * number
            if edge:
                at = select(remaining > number, at, 0)
                mask = _some(number, remaining, variable("left"), lanes)
            code.emit(ir.Store("y", at, column, mask))

    def _columns(self, row: str, edge: bool, narrow: bool) -> list[ir.Value]:
        """The transposed elements of a square: loads of partial rows side by side, or of whole
        rows."""
        side, first = self.vector.lanes, variable(f"{row}_from")
        dtype, known = self.vector.dtype, variable("known")

        def piece(kind: ir.Type, begin: int, number: int) -> ir.Value:
            at: ir.Value = first + CHUNK.lane_step * number
            if narrow or edge:
                at = select(known > number, at, first if narrow else constant(0))
            wanted = None
            if edge:
                rest = variable(f"{row}_left") + -begin
                wanted = _some(number, known, rest, kind.lanes)
            return ir.Load(kind, "x", at + begin, wanted)

        few = ir.Type(dtype, min(side, PIECE // dtype.bytes))
        most = few.lanes * side if few.lanes == side else side
        wide = ir.Type(dtype, max(side, min(self._wide.lanes, most)))
        columns: list[ir.Value] = []
        for begin in range(0, side, few.lanes):
            columns += block_columns(wide, side, partial(piece, few, begin), self.code.let)
        return columns

    def _compute_columns(self, row: str, columns: list[ir.Value], edge: bool) -> None:
        """Compute and store the function of each column of a square."""
        lanes = self.vector.lanes
        for number, part in enumerate(columns):
            self.code.emit(ir.Store(_SQUARE, constant(number * lanes), part))
        mask = first_lanes(least(variable("left"), lanes), lanes) if edge else None
        count = least(variable(f"{row}_left"), lanes)
        with self.code.range(0, count, name=f"{row}_column") as column:
            found = ir.Load(self.vector, _SQUARE, column * lanes)
            self._write(variable(f"{row}_to") + self._row_stride * column, found, mask)

    # ---- elements ------------------------------------------------------------------------------

    def _at(self, form: Affine) -> ir.Value:
        """A form over the outer axes, with lane and row 0."""
        own = {axis.name for axis in self.form.outer}
        terms = [variable(name) * self._value(c) for name, c in form.terms if name in own]
        return index_sum(self._value(form.constant), *terms)

    def _offsets(self, row: ir.Value, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Source and target offsets of an element."""
        return (
            CHUNK.source + row + lane * CHUNK.lane_step,
            CHUNK.target + lane + row * self._row_stride,
        )

    def _ends(self, axis: str) -> tuple[ir.Value, ir.Value]:
        """Start and end of the chunk along an axis."""
        if axis == "row":
            return CHUNK.row0, CHUNK.row1
        return constant(0), CHUNK.width

    def _write(self, offset: ir.Value, found: ir.Value, mask: ir.Value | None) -> ir.Store:
        """Store the function of some elements."""
        value = found
        if not self._copies:
            lanes = found.type.lanes
            scope = ScalarLowering(self.context, lane=self.form.lane.name, lanes=lanes, mask=mask)
            scope.know(self.form.read, scope.name(found))
            value = scope.value(self.form.value, self.made)
            self.code.take(scope.steps)
        store = ir.Store("y", offset, value, mask)
        self.code.emit(store)
        return store


def _some(number: int, count: ir.Value, first: ir.Value, lanes: int) -> ir.Value:
    """The `first` lanes of vector `number`, which has `lanes`; none from vector `count` on."""
    kept = select(count > number, greatest(first, 0), 0)
    return first_lanes(least(kept, lanes), lanes)

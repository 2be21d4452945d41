"""Code for row-wise groups: passes with vector lanes along or across the rows.

Along: the lanes are contiguous in one row; reductions end with a horizontal reduction. Across: the
lanes are adjacent rows; each lane walks its own row, element by element.

    along  (softmax over c)          across (mean over s)
    for r:                           for b, block of 64 c:
      for c by 16: top = max(...)      for s: total[64] += x(b, s, block)
      for c by 16: e, total            y(b, block) = total[64] / S
      for c by 16: y = e / total
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen import arithmetic
from anydim.compiler.kernels.codegen.nontemporal import nontemporal_condition
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import (
    START,
    STOP,
    Segment,
    first_lanes,
    for_loop,
    if_block,
    open_segments,
    parallel_loop,
    run_segment,
    segments,
)
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, least, variable
from anydim.compiler.kernels.partial_rows import Part, adjoining, limits, share, without_numbers
from anydim.compiler.kernels.rows.few_columns import FewColumns, fits_few_columns, interleaved_loop
from anydim.compiler.kernels.rows.row_body import Cell, Row, RowForm, Setting, whole_pieces
from anydim.compiler.kernels.rows.short_rows import ShortRows
from anydim.compiler.kernels.work_estimate import PIECE
from anydim.lang.tree import Axis, Expr, Read
from anydim.lang.tree.affine import reads
from anydim.sizes import Size, as_size, ceil_div, product

FEW_ELEMENTS = 4  # of a part of a row, which are computed one by one
# 8 columns: 0.44 -> 0.30 ms; four accumulators gain nothing.
INTERLEAVED = 2  # accumulators of a column, for elements in turn: an addition takes some cycles
# 700 rows of 5 elements: 4.6 -> 2.4.
FEWER = (8, 4)  # if elements are read at looked-up indices
PART = "part of a row"  # axis over pieces of rows, or over blocks of rows


def lookups(body: Expr, lane: str) -> list[Read]:
    """Reads along a row at data-dependent indices."""
    return [r for r in reads(body) if any(lane in free_axes(i) and reads(i) for i in r.indices)]


def fewer_lanes(form: RowForm, lanes: int) -> tuple[int, ...]:
    """Smaller lane counts for reads at looked-up indices, which cost time per lane, masked or
    not."""
    looked_up = any(lookups(s.body, form.lane.name) for s in form.group.statements)
    kept = form.across and form.plan.slots
    return tuple(n for n in FEWER if n < lanes and looked_up and not kept)


class RowProgram:
    """Emits the body of a kernel for a form."""

    def __init__(self, setting: Setting, single: bool = False, unit: bool = False) -> None:
        self.setting, self.form, self.plan = setting, setting.form, setting.plan
        self.unit = unit  # a `unit_form`: the parallel range counts its elements
        self.single = single  # each row is one vector, with the same lanes in all rows
        self.segments: tuple[Segment, ...] = ()
        self.span: tuple[ir.Value, ir.Value] | None = None  # of the part of a row, if known

    # ---- steps of the main function ------------------------------------------------------------

    def rows(self) -> tuple[ir.Step, ...]:
        """The rows of the range, which have elements."""
        return self._rows(replace(self.setting.context, running=True), empty=False)

    def empty_rows(self) -> tuple[ir.Step, ...]:
        """The rows of the range, which have no elements."""
        stored = self.setting.scalars & self.setting.outputs
        return self._rows(self.setting.context, empty=True) if stored else ()

    def few_columns(self) -> tuple[ir.Step, ...]:
        """The rows of the range, several in a vector; see `few_columns.py`."""
        kernel = ScalarLowering(replace(self.setting.context, running=True))

        def block(scope: ScalarLowering) -> None:
            scope.steps += FewColumns(self.setting).steps(scope)

        self._blocks_across(kernel, block)
        return tuple(kernel.steps)

    def single_vector(self, lanes: int) -> RowProgram:
        """The program for rows of at most one vector of `lanes`."""
        form = replace(self.form, pieces=False)
        setting = Setting(form, self.setting.context, lanes, 1)
        return RowProgram(setting, single=True, unit=self.unit)

    @property
    def parallel(self) -> Size:
        """The extent of the parallel range."""
        if self.form.whole:
            return self.form.row[0].extent
        rows = product(axis.extent for axis in self._shared_axes())
        if self.shares is not None:
            rows = rows + self.form.row[0].extent
        if self.form.across:
            return rows * self._blocks
        return rows * self._pieces_of_a_row if self.form.pieces else rows

    @property
    def _blocks(self) -> Size:
        """Blocks of lanes across the rows."""
        return ceil_div(self.form.lane.extent, self.setting.width)

    @cached_property
    def shares(self) -> tuple[Expr, Expr] | None:
        """The ends of the parts of rows by whose sizes threads share the rows; None: by number."""
        form, rows = self.form, self._shared_axes()
        if len(rows) != 1 or not form.parts or self.setting.context.machine.max_lanes:
            return None
        return adjoining(form.part(0), form.row[0].name, rows[0].name)

    @property
    def _pieces_of_a_row(self) -> Size:
        return ceil_div(self.form.lane.extent, self.setting.piece)

    @property
    def scratch(self) -> Size:
        """Bytes of the elements kept in scratch."""
        return self.setting.slot_start(len(self.plan.slots))

    def short_rows(self) -> tuple[ir.Step, ...]:
        """Blocks of rows side by side, through transposed panels; see `short_rows.py`."""
        context = replace(self.setting.context, running=True, step=0)
        kernel, short = ScalarLowering(context), ShortRows(self.setting)
        kernel.steps += short.declare_panels()
        with for_loop(kernel, STOP, START, self.setting.lanes, PART, "r") as (scope, first):
            short.block(
                scope, first, lambda remaining: self._block(scope, first, remaining, False, 1)
            )
        return tuple(kernel.steps)

    def _shared_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.form.outer if axis != self.form.lane)

    def _rows(self, context: Context, empty: bool) -> tuple[ir.Step, ...]:
        kernel = ScalarLowering(context)
        if self.form.across:
            self._rows_across(kernel, empty)
        else:
            self._rows_along(kernel, empty)
        return tuple(kernel.steps)

    def _distances(self, kernel: ScalarLowering) -> None:
        """Enable prefetch of the next row only if several rows fit into the L1 cache."""
        if self.setting.ahead:
            bytes_of = max(t.type.dtype.bytes for t in self.form.group.inputs)
            # Softmax of 1024 x 384 gains 25 %; longer rows would evict what the present one reads.
            most = self.setting.context.machine.l1_bytes // (4 * bytes_of * len(self.setting.ahead))
            self.setting.near = kernel.name(self.setting.value(self.form.lane.extent) < most)

    # ---- along ---------------------------------------------------------------------------------

    def _rows_along(self, kernel: ScalarLowering, empty: bool) -> None:
        extent = self.setting.value(self.form.lane.extent)
        low, high = (START, STOP) if self.form.whole else (constant(0), extent)
        if self.single:
            # One mask for all rows and no loop: 0.5 ns a row instead of 2 to 5.
            mask = first_lanes(kernel, extent, self.setting.lanes)
            self.segments = (Segment(1, constant(0), None, mask),)
        elif self.form.cut and not empty:
            whole = self.setting.value(whole_pieces(self.form) * PIECE)
            lanes, unroll = self.setting.lanes, self.setting.unroll
            self.segments = open_segments(kernel, whole, extent, lanes, unroll, lanes)
            self._distances(kernel)
        elif not empty and not self.form.pieces and not self.form.parts:
            self.segments = self._segments(kernel, low, high)
            self._distances(kernel)

        def one(scope: ScalarLowering) -> None:
            if self.form.pieces:
                first = scope.name(scope.indices[PART] * self.setting.piece)
                last = scope.name(least(first + self.setting.piece, extent))
                self.segments = self._segments(scope, first, last)
            if not empty and self.setting.lanes > 1 and self._has_one_part():
                self._row_by_length(scope)
            else:
                self._row_along(scope, empty)

        if self.form.whole:
            one(kernel)
        else:
            axes = [(axis.name, self.setting.value(axis.extent)) for axis in self.form.outer]
            if self.form.pieces:
                axes.append((PART, self.setting.value(self._pieces_of_a_row)))
            parallel_loop(kernel, axes, one, *self._range(kernel))

    def _row_along(self, scope: ScalarLowering, empty: bool) -> None:
        """A row: its passes, then its scalar results."""
        row = Row(self.setting, scope.inner({}, answers=self.setting.scalars), None)
        if empty:
            row.empty()
        for pass_number in range(0 if empty else self.plan.passes):
            self._pass_along(row, pass_number)
        row.finish()
        scope.steps += row.scope.steps

    def _has_one_part(self) -> bool:
        """Whether all passes visit the same part of a row, whatever the values of the row."""
        parts = {without_numbers(part) for part in self.form.parts}
        read = {r.tensor for part in parts for bound in part for r in reads(bound.value)}
        return len(self.form.row) == len(parts) == 1 and not read & self.form.plan.kinds.keys()

    def _row_by_length(self, scope: ScalarLowering) -> None:
        """A row by vectors, or element by element if only a few are in its part."""
        low, high = self._span(scope, self.form.lane, self.form.part(0))
        # A masked gather takes 9 ns, as long as four elements one by one.
        few = RowProgram(Setting(self.form, self.setting.context, 1, 1))
        branches = []
        for program in (few, self):
            program.span = low, high
            branch = scope.inner({})
            program._row_along(branch, empty=False)
            branches.append(tuple(branch.steps))
        scope.steps.append(ir.If(scope.name(high - low) <= FEW_ELEMENTS, *branches))

    def _segments(
        self, scope: ScalarLowering, low: ir.Value, high: ir.Value
    ) -> tuple[Segment, ...]:
        setting = self.setting
        return segments(scope, low, high, setting.lanes, setting.unroll, setting.step)

    def _range(self, kernel: ScalarLowering) -> tuple[ir.Value, ir.Value]:
        """The rows to process; for a unit form, those that start in the part of the range."""
        if self.shares is not None:
            row = self._shared_axes()[0]
            blocks = self.setting.value(self._blocks if self.form.across else as_size(1))
            total = kernel.name(self.setting.value(row.extent) * blocks)
            of = (self.setting.value(self.form.row[0].extent), self.shares, row.name)
            first, last = (share(kernel, at, total, blocks, *of) for at in (START, STOP))
            return first, last
        if not self.unit:
            return START, STOP
        extent = self.setting.value(self.form.lane.extent)
        first, last = (kernel.name((end + (extent - 1)) // extent) for end in (START, STOP))
        return first, last

    def _pass_along(self, row: Row, pass_number: int) -> None:
        part = self.form.part(pass_number)
        widest = self.setting.unroll if self.form.parts else 1
        copies = max((segment.copies for segment in self.segments), default=widest)
        row.begin(pass_number, copies)

        def vector(scope: ScalarLowering, segment: Segment) -> None:
            def cell(inner: ScalarLowering, at: ir.Value, copy: int) -> None:
                Cell(row, inner, {self.form.lane.name: at}, pass_number, copy, segment.mask).emit()

            condition = self._nontemporal(scope, segment)
            run_segment(scope, segment, self.setting.step, cell, condition)

        def vectors(scope: ScalarLowering) -> None:
            if self.form.cut:
                self._pieces(scope, row, pass_number, vector)
            if not self.form.parts:
                for segment in self.segments:
                    vector(scope, segment)
                return
            low, high = self.span or self._span(scope, self.form.lane, part)
            with if_block(scope, scope.name(low < high), certain=False) as some:
                for segment in self._segments(some, low, high):
                    vector(some, segment)

        def one_pass(scope: ScalarLowering) -> None:
            with ExitStack() as loops:
                for axis in self.form.row[:-1]:
                    low, high = self._span(scope, axis, part)
                    loop = for_loop(scope, high, low, axis=axis.name, certain=not part)
                    scope, _ = loops.enter_context(loop)
                vectors(scope)

        self._by_variants(row, one_pass)
        self._finish_pass(row, pass_number)

    def _span(self, scope: ScalarLowering, axis: Axis, part: Part) -> tuple[ir.Value, ir.Value]:
        """The first index and the end of an axis of a row in a pass over a part of it."""
        return limits(part, axis.name, scope, self.setting.value(axis.extent))

    def _nontemporal(self, scope: ScalarLowering, segment: Segment) -> ir.Value | None:
        """Whether the stores of a segment are nontemporal; None: never."""
        setting, lane = self.setting, self.form.lane.name
        if not self.form.independent or segment.high is None or setting.step != setting.lanes:
            return None
        buffers, statements = setting.context.buffers, setting.statements
        stored = (
            (buffers[name], setting.dtype(name), own_address(statements[name]))
            for name in self.plan.stored
        )
        return nontemporal_condition(scope, lane, segment.low, setting.lanes, stored)

    def _finish_pass(self, row: Row, pass_number: int) -> None:
        row.end(pass_number)

    def _pieces(
        self, scope: ScalarLowering, row: Row, pass_number: int,
        part: Callable[[ScalarLowering, Segment], None],
    ) -> None:  # fmt: skip
        """All pieces of a row except the last one."""
        count = self.setting.value(whole_pieces(self.form))
        with for_loop(scope, count, letter="piece") as (inner, piece):
            first = inner.name(piece * PIECE)
            part(inner, Segment(self.setting.unroll, first, inner.name(first + PIECE)))
            row.piece_done(inner, pass_number)

    def _by_variants(self, row: Row, body: Callable[[ScalarLowering], None]) -> None:
        """A pass that divides by a total: by multiplication if no term is too small for it."""
        if not row.small:
            body(row.scope)
            return
        variants = []
        for safe in (frozenset(), frozenset(row.small)):
            scope = row.scope.inner({})
            scope.safe = safe
            body(scope)
            variants.append(tuple(scope.steps))
        row.scope.steps.append(ir.If(reduce(or_, row.small.values()), *variants, rare=True))

    # ---- across --------------------------------------------------------------------------------

    def _rows_across(self, kernel: ScalarLowering, empty: bool) -> None:
        lane = self.form.lane
        extent = self.setting.value(lane.extent)

        def one(scope: ScalarLowering) -> None:
            first = scope.name(scope.indices[PART] * self.setting.width)
            known = lane.extent.constant
            lanes, vectors = self.setting.lanes, self.setting.unroll
            if known is not None and known % self.setting.width == 0:
                scope.steps += self._block(scope, first, None, empty, vectors)
                return
            remaining = scope.name(extent - first)
            if empty or (known is not None and known <= lanes):
                copies = vectors if empty else 1
                scope.steps += self._block(scope, first, remaining, empty, copies)
                return
            full = self._block(scope, first, None, empty, vectors)
            part = self._pairs(scope, first, remaining, min(vectors, 2))
            fewer = fewer_lanes(self.form, lanes)
            if fewer:
                part = self.single_vector(fewer[0])._pairs(scope, first, remaining, 1)
            elif vectors > 1:  # columns for one vector do not pay for two
                few = self._block(scope, first, remaining, empty, 1)
                part = (ir.If(remaining <= lanes, few, part),)
            scope.steps.append(ir.If(remaining >= self.setting.width, full, part))

        self._blocks_across(kernel, one)

    def _blocks_across(
        self, kernel: ScalarLowering, block: Callable[[ScalarLowering], None]
    ) -> None:
        """A loop over the blocks of lanes of the range."""
        axes = [(axis.name, self.setting.value(axis.extent)) for axis in self._shared_axes()]
        blocks = self.setting.value(self._blocks)
        parallel_loop(kernel, [*axes, (PART, blocks)], block, *self._range(kernel))

    def _pairs(
        self, outer: ScalarLowering, first: ir.Value, remaining: ir.Value, vectors: int
    ) -> tuple[ir.Step, ...]:
        """The `remaining` rows from `first` on, which fill no whole block, in smaller blocks."""
        part = outer.inner({})
        with for_loop(part, remaining, 0, vectors * self.setting.lanes, letter="done") as (
            scope,
            done,
        ):
            at, rest = scope.name(first + done), scope.name(remaining - done)
            scope.steps += self._block(scope, at, rest, False, vectors)
        return tuple(part.steps)

    def _block(
        self, outer: ScalarLowering, first: ir.Value, remaining: ir.Value | None, empty: bool,
        vectors: int,
    ) -> tuple[ir.Step, ...]:  # fmt: skip
        """`vectors` of rows from `first` on; only `remaining` ones exist, if given."""
        shared, lane, lanes = outer.inner({}), self.form.lane.name, self.setting.lanes
        rows: list[Row] = []
        for copy in range(vectors):
            at, mask = shared.name(first + copy * lanes), None
            if remaining is not None:
                mask = first_lanes(shared, remaining - copy * lanes, lanes)
            scope = shared.inner(
                {lane: at}, lane=lane, lanes=lanes, mask=mask, answers=self.setting.scalars
            )
            scope.steps = shared.steps
            rows.append(Row(self.setting, scope, copy))
        for pass_number in range(0 if empty else self.plan.passes):
            self._pass_across(shared, rows, pass_number)
        for row in rows:
            if empty:
                row.empty()
            row.finish()
        return tuple(shared.steps)

    def _pass_across(self, shared: ScalarLowering, rows: list[Row], pass_number: int) -> None:
        turns = self._turns(pass_number)
        for row in rows:
            row.begin(pass_number, turns)
        masked = rows[-1].scope.mask is not None and not self.plan.made_by(pass_number)
        part = self.form.part(pass_number)

        def nest(
            uniform: ScalarLowering, indices: dict[str, ir.Value], axes: tuple[Axis, ...]
        ) -> None:
            if axes:
                at = variable(self.setting.context.fresh("i"))
                inner = uniform.inner({axes[0].name: at}, certain=not part)
                if turns > 1 and len(axes) == 1:
                    in_turns(uniform, indices, axes[0])
                    return
                nest(inner, {**indices, axes[0].name: at}, axes[1:])
                low, high = self._span(uniform, axes[0], part)
                if masked and len(axes) == 1:
                    uniform.steps.append(interleaved_loop(at, high, 1, inner.steps, uniform))
                else:
                    uniform.steps.append(arithmetic.loop(at.name, low, high, 1, *inner.steps))
                return
            for row in rows:
                Cell(row, uniform, indices, pass_number, 0, row.scope.mask).emit()

        def in_turns(uniform: ScalarLowering, indices: dict[str, ir.Value], axis: Axis) -> None:
            """A loop of `turns` elements an iteration, each with its own accumulators."""
            low, high = self._span(uniform, axis, part)
            whole = uniform.name(low + arithmetic.round_down(high - low, turns))
            for begin, end, count in ((low, whole, turns), (whole, high, 1)):
                at = variable(self.setting.context.fresh("i"))
                inner = uniform.inner({axis.name: at}, certain=False)
                for turn in range(count):
                    here = inner.name(at + turn) if turn else at
                    one = inner.inner({axis.name: here})
                    for row in rows:
                        index = {**indices, axis.name: here}
                        Cell(row, one, index, pass_number, turn, row.scope.mask).emit()
                    inner.steps += one.steps
                steps = tuple(inner.steps)
                uniform.steps.append(arithmetic.loop(at.name, begin, end, count, *steps))

        nest(shared, {}, self.form.row)
        for row in rows:
            row.end(pass_number)

    def _turns(self, pass_number: int) -> int:
        """The accumulators of a column in a pass over a part of a row: the same for any columns."""
        few = fits_few_columns(self.form, self.setting.lanes)
        return INTERLEAVED if self.form.part(pass_number) and not few else 1

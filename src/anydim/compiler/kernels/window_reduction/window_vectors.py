"""The main loops of sliding-window kernels: result vectors, their windows and epilogues.

Several vectors are reduced at a time (`window_block.py`): in adjacent rows if their windows share
rows of the tensor, otherwise side by side. Values that depend on columns only, such as masks, are
computed before the loop over rows. A block whose windows are in bounds, or out of bounds in columns
only, uses a variant without the other checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anydim.base.dtypes import int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop, quotient, quotient_up
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering, SizeParameters
from anydim.compiler.kernels.codegen.vector_loops import (
    START,
    STOP,
    for_loop,
    if_block,
    parallel_loop,
)
from anydim.compiler.kernels.ir import constant, greatest, least, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.epilogue import PRODUCT
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.versions import Steps, Version, versioned_steps
from anydim.compiler.kernels.window_reduction.merged_rows import (
    COLUMN,
    ROW,
    Image,
    MergedColumns,
    image_of,
)
from anydim.compiler.kernels.window_reduction.window_block import Block, Cell, whole_number
from anydim.compiler.kernels.window_reduction.window_columns import Columns, Setting
from anydim.compiler.kernels.window_reduction.window_form import Limit, WindowForm
from anydim.lang.tree import Axis, TensorType
from anydim.lang.tree.affine import Affine, row_major_strides, to_expr
from anydim.sizes import ALWAYS, Box, Size, as_size, at_most, product

_STRIP = 32  # rows processed before the next columns: they stay in the L1 cache
_NEAR = 2  # in L2 cache sizes: larger tensors come from memory
_GATHERED = 4  # bytes of the smallest elements with a gather instruction
_FEW = 4  # rows of the small variant where blocks have more


class WindowWriter:
    """Emits the body of one kernel, and collects the sizes it needs.

    `below` is the form for vectors in adjacent rows: more of its taps are unrolled. In `flat`, for
    images of few rows, these are taps of one row.
    """

    def __init__(
        self, form: WindowForm, below: WindowForm, flat: WindowForm, lanes: int, vectors: int,
        machine: Machine, touched: Operands, box: Box,
    ) -> None:  # fmt: skip
        self.form, self.vectors = form, vectors
        self.sizes = SizeParameters()
        types = {PRODUCT: TensorType(form.dtype, ())}
        types |= {name: TensorType(int64, ()) for name in (ROW, COLUMN)}
        types = {**touched.types, **types}
        self.context = Context(types, self.sizes, machine, touched.buffers)
        self.setting = Setting(below if form.share else form, self.context, lanes)
        self.flat = Setting(flat, self.context, lanes)
        self.wide = Setting(form, self.context, machine.lanes(form.dtype))
        image = image_of(form, self.wide.lanes, box)
        sources = {window.read.tensor for _, windows in form.bodies for window in windows}
        if any(types[tensor].dtype.bytes < _GATHERED for tensor in sources):
            # No processor gathers bytes.
            image = None if image is None or image.gathered else image
        self.image = image

    def versions(self, schedule: Any) -> list[Version[Steps]]:
        """The versions along rows: several rows in a vector, single rows of flat images, others."""
        found: list[Version[Steps]] = []
        image, lanes, limits = self.image, self.wide.lanes, self.context.machine.limits
        if image is not None:
            pays, right = image.pays(lanes, limits), image.right(lanes)
            found.append(
                Version(
                    "merged_rows", pays, schedule, lambda _: self._emit_merged_rows(image), right
                )
            )
        if self.form.share:
            few = at_most(self.form.outer[-1].extent, limits.single_window_rows)
            found.append(Version("single_rows", few, schedule, lambda _: self._single(), ALWAYS))
        return [*found, Version("rows", ALWAYS, schedule, lambda _: self._rows())]

    def body(self, versions: Sequence[Version[Steps]]) -> Steps:
        """The steps of main: rows from start to stop."""
        return (ir.If(START < STOP, versioned_steps(versions, self.sizes)),)

    def _single(self) -> Steps:
        scope = ScalarLowering(self.context)
        self._strips(scope, self.flat, self._single_rows)
        return tuple(scope.steps)

    def _rows(self) -> Steps:
        scope = ScalarLowering(self.context)
        if self.form.share:
            self._strips(scope, self.setting, self._blocks)
        else:
            axes = [(axis.name, self.sizes.value(axis.extent)) for axis in self.form.outer]
            parallel_loop(scope, axes, self._row)
        return tuple(scope.steps)

    def _images(
        self, scope: ScalarLowering, first: ir.Value, last: ir.Value,
        inside: Callable[[ScalarLowering, ir.Value, ir.Value], None],
        home: ScalarLowering | None = None,
    ) -> None:  # fmt: skip
        """Images from first to last; `inside` gets the range of rows to process."""
        outer, rows = self.form.outer[:-1], self.form.outer[-1]
        strides = row_major_strides(tuple(axis.extent for axis in self.form.outer))
        number = Affine.of(as_size(0), {axis.name: by for axis, by in zip(outer, strides)})

        def image(inner: ScalarLowering) -> None:
            before = inner.scalar(to_expr(number))
            low = inner.name(greatest(START - before, 0))
            high = inner.name(least(STOP - before, self.sizes.value(rows.extent)))
            inside(inner, low, high)

        axes = [(axis.name, self.sizes.value(axis.extent)) for axis in outer]
        parallel_loop(scope, axes, image, first, last, home)

    def _span(self, scope: ScalarLowering) -> tuple[ir.Value, ir.Value]:
        """The images with rows to process."""
        height = self.sizes.value(self.form.outer[-1].extent)
        return scope.name(quotient(START, height)), scope.name(quotient_up(STOP, height))

    # ---- vectors in adjacent rows ----------------------------------------------------------------

    def _strips(
        self, scope: ScalarLowering, setting: Setting,
        emit: Callable[[Columns, ScalarLowering, ir.Value, ir.Value], None],
    ) -> None:  # fmt: skip
        """Strips of rows, of one image or of several short ones, vector by vector."""
        (first, last), extent = self._span(scope), self.sizes.value(self.form.lane.extent)
        height = self.sizes.value(self.form.outer[-1].extent)
        some = scope.name(greatest(quotient(constant(_STRIP), height), 1))
        with for_loop(scope, last, first, some, letter="image") as (images, image):
            end = images.name(least(image + some, last))
            with (
                for_loop(images, height, 0, _STRIP, letter="strip") as (strip, top),
                for_loop(strip, extent, 0, setting.lanes, self.form.lane.name) as (inner, at),
            ):
                columns = Columns(setting, inner, at, extent)

                def rows(scope: ScalarLowering, low: ir.Value, high: ir.Value) -> None:
                    begin = scope.name(greatest(low, top))
                    emit(columns, scope, begin, scope.name(least(high, top + _STRIP)))

                self._images(inner, image, end, rows, images)

    def _blocks(
        self, columns: Columns, image: ScalarLowering, low: ir.Value, high: ir.Value
    ) -> None:
        """Blocks of rows of an image, which share the loads of their windows."""
        rows, copies = self.form.outer[-1], self.vectors
        with for_loop(image, high, low, copies, rows.name, "row") as (block, row):
            cells = [
                Cell(columns, {rows.name: row + copy}, (rows.name, copy)) for copy in range(copies)
            ]
            span = constant(copies - 1)
            # Depthwise 7 x 7 from memory: 1.0 to 1.3 -> 0.84; within caches it costs 3 to 7 %.
            self._prefetch(columns, block, row)
            self._with_fast_path(self.setting, block, rows, copies, span, high, cells, cells)

    def _prefetch(self, columns: Columns, block: ScalarLowering, row: ir.Value) -> None:
        """Prefetch the reads of these columns in the next strip, for tensors too large for the
        caches.

        Hardware prefetchers do not follow the line order of strips.
        """
        rows, form, value = self.form.outer[-1].name, self.setting.form, self.sizes.value
        moved = {rows: row + _STRIP, form.lane.name: columns.at}
        for window in {w.read.tensor: w for _, windows in form.bodies for w in windows}.values():
            source, buffer = self.context.types[window.read.tensor], self.setting.buffer(window)
            bytes = value(product(source.shape) * source.dtype.bytes)
            with if_block(block, bytes > _NEAR * self.context.machine.l2_bytes) as far:
                address = window.address.without(*(axis.name for axis in form.loops))
                lines = far.inner(moved)
                first, step = lines.name(lines.offset(address)), value(address.stride(rows))
                lines.steps += [ir.Prefetch(buffer, first + step * n) for n in range(self.vectors)]
                far.steps += lines.steps

    def _single_rows(
        self, columns: Columns, image: ScalarLowering, low: ir.Value, high: ir.Value
    ) -> None:
        """Rows of an image one by one: few rows share no loads."""
        rows = self.form.outer[-1].name
        with for_loop(image, high, low, 1, rows, "row") as (block, row):
            cell = Cell(columns, {rows: row})
            block.steps += Block(self.flat, block.inner({}), [cell], frozenset()).steps()

    # ---- vectors side by side --------------------------------------------------------------------

    def _row(self, row: ScalarLowering) -> None:
        """All vectors of a row, one block after the other."""
        lane, lanes, at = self.form.lane, self.setting.lanes, variable("at")
        extent, step = self.sizes.value(lane.extent), lanes * self.vectors
        block = row.inner({lane.name: at})
        whole, parts = (
            [
                Cell(Columns(self.setting, block, at, extent, by, full), {}, (lane.name, by))
                for by in range(0, step, lanes)
            ]
            for full in (True, False)
        )
        self._with_fast_path(
            self.setting, block, lane, step, constant(step - 1), extent, whole, parts
        )
        end = row.name(quotient(extent, step) * step)
        row.steps.append(loop("at", 0, end, step, *block.steps))
        single = row.inner({lane.name: variable("last")})
        last = Cell(Columns(self.setting, single, variable("last"), extent), {}, (lane.name, 0))
        steps = Block(self.setting, single.inner({}), [last], frozenset(), extent).steps()
        row.steps.append(loop("last", end, extent, lanes, *single.steps, *steps))

    # ---- images of few columns -------------------------------------------------------------------

    def _emit_merged_rows(self, image: Image) -> tuple[ir.Step, ...]:
        """Vectors of several whole rows."""
        scope = ScalarLowering(self.context)
        copies = 1 if image.gathered else min(self.vectors, _FEW)
        columns = MergedColumns(self.wide, scope, image)
        step = scope.name(columns.height * copies)
        rows, row = image.rows.name, variable("row")

        def inside(inner: ScalarLowering, low: ir.Value, high: ir.Value) -> None:
            block = inner.inner({rows: row})
            at = [block.name(row + columns.height * n) for n in range(copies)]
            whole = [Cell(columns, {rows: first}) for first in at]
            parts = [
                Cell(columns, {rows: first}, inside=columns.part(block, high - first))
                for first in at
            ]
            span = step - 1
            self._with_fast_path(self.wide, block, image.rows, step, span, high, whole, parts)
            inner.steps.append(loop("row", low, high, step, *block.steps))

        self._images(scope, *self._span(scope), inside)
        return tuple(scope.steps)

    # ---- fast path without checks ----------------------------------------------------------------

    def _with_fast_path(
        self, setting: Setting, block: ScalarLowering, axis: Axis, step: ir.Value | int,
        span: ir.Value,
        high: ir.Value, whole: Sequence[Cell], parts: Sequence[Cell],
    ) -> None:  # fmt: skip
        """Branches: `whole` if block and windows are in bounds, else `parts` with checks."""
        known = self._knowable(setting.form, axis)
        at = block.indices[axis.name]
        clear = at + step <= high
        for part in self._clear(setting.form, block, axis, span, known):
            clear = clear & part
        fast = Block(setting, block.inner({}), whole, known).steps()
        slow = Block(setting, block.inner({}), parts, frozenset(), high).steps()
        if len(parts) > _FEW:
            few = Block(setting, block.inner({}), parts[:_FEW], frozenset(), high).steps()
            slow = (ir.If(high - at <= _FEW, few, slow),)
        block.steps.append(ir.If(clear, fast, slow))

    def _knowable(self, form: WindowForm, axis: Axis) -> frozenset[Limit]:
        """Limits that hold for a whole block if they hold at its first and last index.

        For blocks along rows, limits on columns are left to masks.
        """
        lane, counted = form.lane.name, {a.name for a in (*form.loops, axis)}
        limits = {x for _, windows in form.bodies for window in windows for x in window.limits}
        return frozenset(
            limit
            for limit in limits
            if axis.name == lane or limit.index.stride(lane).constant == 0
            if all((by.constant or -1) > 0 for n, by in limit.index.terms if n in counted)
        )

    def _clear(
        self, whole: WindowForm, block: ScalarLowering, axis: Axis, span: ir.Value,
        known: frozenset[Limit],
    ) -> Iterator[ir.Value]:  # fmt: skip
        """Whether all windows meet their limits, from the first index on to `span` more."""
        found: dict[tuple[Affine, Size], list[int]] = {}
        for limit in sorted(known, key=str):
            fixed = whole_number(limit.index.constant)
            form = Affine(limit.index.constant - fixed, limit.index.terms)
            found.setdefault((form, limit.extent), []).append(fixed)
        extents = {loop.name: loop.extent for loop in whole.loops}
        for (form, extent), fixed_ones in found.items():
            first = Affine.of(form.constant, {n: c for n, c in form.terms if n not in extents})
            more = sum(((extents[n] - 1) * c for n, c in form.terms if n in extents), as_size(0))
            low = block.scalar(to_expr(first))
            last = low + span * self.sizes.value(form.stride(axis.name))
            last = last + self.sizes.value(more) + max(fixed_ones)
            yield low + min(fixed_ones) >= 0
            yield last < self.sizes.value(extent)

"""Windows over channels-last images: vectors along channels, windows walk along a row.

    for each image, each block of channels, each row of the result, each vector of the block
        for each position along the row, several at a time where their windows are in bounds
            for each row of the window that is in bounds: each tap

Values that are invariant along the row, such as the weights of a vector of channels, stay in
registers; vectors shared by adjacent windows are loaded once. Nothing depends on the width of
images, and lanes are unused only in the last vector of channels. Taps out of bounds are skipped:
they do not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from itertools import groupby
from operator import and_

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient_up, round_down
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.vector_loops import (
    for_loop,
    if_block,
    nested_loops,
    parallel_loop,
)
from anydim.compiler.kernels.ir import constant, greatest, least, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.compiler.kernels.window_reduction.window_block import (
    accumulate_tap,
    is_neutral,
    start_of,
)
from anydim.compiler.kernels.window_reduction.window_columns import inside, narrow_range
from anydim.compiler.kernels.window_reduction.window_form import Limit, Window, WindowForm
from anydim.lang.tree import Axis, Expr, Index, Read
from anydim.lang.tree.affine import Affine, operands, to_expr
from anydim.sizes import Size, ceil_div, product

BLOCK, CHANNEL = "block of channels", "first channel"
VECTORS_PER_BLOCK = (
    8  # vectors of channels per block: their lines are adjacent, and prefetched together
)
_HELD = 9  # vectors held in registers over a row: more of them would spill the accumulators


def walks(form: WindowForm, lanes: int) -> bool:
    """Whether to vectorize along channels: there are enough of them, and taps can be skipped."""
    channels = form.lane.extent.constant
    if channels is None or 2 * channels < lanes or not form.outer:
        return False
    return can_skip_taps(form)


def can_skip_taps(form: WindowForm) -> bool:
    """Whether positions of a row are a known stride apart, and taps out of bounds can be
    skipped."""
    return all(
        all(_fits(window, form) for window in windows)
        and all(is_neutral(window.read, expr, form) for window in windows if window.limits)
        for expr, windows in form.bodies
    )


def _fits(window: Window, form: WindowForm) -> bool:
    """Whether lanes are contiguous, uniformly in or out of bounds, and move along the row by known
    strides."""
    walk, lane = form.outer[-1].name, form.lane.name
    return window.stride == 1 and all(
        limit.index.stride(lane) == 0
        and (limit.index.stride(walk).constant or 0) >= 0
        and limit.index.stride(walk).constant is not None
        for limit in window.limits
    )


def _own_axes(expr: Expr, windows: Collection[Read]) -> frozenset[str]:
    """The axes that an expression depends on outside of windows: as in maxima with an index, or by
    numbers that are equal in all lanes, such as the weight of a channel if lanes lie along rows."""
    if isinstance(expr, Index):
        return frozenset((expr.name,))
    inner = () if expr in windows else operands(expr)
    return frozenset().union(*(_own_axes(each, windows) for each in inner))


def positions_of(form: WindowForm, lanes: int) -> Size:
    """The parallel range of the launch: rows of the result, for each block of channels."""
    blocks = ceil_div(form.lane.extent, lanes * VECTORS_PER_BLOCK)
    return product(axis.extent for axis in form.outer[:-1]) * blocks


class AcrossWriter:
    """Emits the body of one kernel, `positions` positions of a row at a time."""

    def __init__(
        self, form: WindowForm, lanes: int, positions: int, context: Context, machine: Machine
    ) -> None:
        self.form, self.lanes, self.positions, self.context = form, lanes, positions, context
        self.vector = ir.Type(form.dtype, lanes)
        self.walk: Axis = form.outer[-1]
        self.value = context.sizes.value
        self.hold = machine.registers >= 32

    def body(self) -> tuple[ir.Step, ...]:
        scope, outer = ScalarLowering(self.context), self.form.outer[:-1]
        extents = [(axis.name, self.value(axis.extent)) for axis in outer]
        blocks = (
            BLOCK,
            quotient_up(self.value(self.form.lane.extent), self.lanes * VECTORS_PER_BLOCK),
        )
        parallel_loop(scope, [*extents[:-1], blocks, *extents[-1:]], self._row)
        return tuple(scope.steps)

    def _row(self, row: ScalarLowering) -> None:
        """One vector after the other if values are held in registers for it, else one position
        after the other."""
        begin = row.name(row.indices[BLOCK] * (self.lanes * VECTORS_PER_BLOCK))
        channels = int(self.form.lane.extent.constant or 0)
        span = begin, row.name(least(begin + self.lanes * VECTORS_PER_BLOCK, channels))
        if self.held:
            self.vectors(row, span, lambda part: Row(self, part.scope, span).emit(part))
        else:
            Row(self, row, span).emit()

    @cached_property
    def held(self) -> tuple[Window, ...]:
        """Windows that are invariant along a row, if they are few.

        Empty if the window stride is above 1: most of the data then comes from memory, and is
        fetched faster in storage order.
        """
        windows = [window for _, windows in self.form.bodies for window in windows]
        # MaxPool 3/2: 107 -> 88 us with all vectors of a block at a position.
        near = all(
            w.address.stride(self.walk.name) == self.form.lane.extent
            for w in windows
            if w not in self.still
        )
        return self.still if near else ()

    @cached_property
    def still(self) -> tuple[Window, ...]:
        """Windows that are invariant along a row, if there are registers for them."""
        moving = {self.walk.name, *(axis.name for axis in self.form.loops)}
        windows = [window for _, windows in self.form.bodies for window in windows]
        still = tuple(w for w in windows if not w.limits and not moving & set(w.address.indices))
        return still if self.hold and len(still) <= _HELD else ()

    def source(self, window: Window) -> str:
        """The buffer that a window reads."""
        return self.context.buffers[window.read.tensor]

    def target(self, output: Output) -> tuple[str, Affine]:
        """The buffer of an output, and the offset of an element in it."""
        return self.context.buffers[output.tensor], self.form.own

    def vectors(
        self, scope: ScalarLowering, span: tuple[ir.Value, ir.Value],
        emit: Callable[[ChannelVector], None],
    ) -> None:  # fmt: skip
        """The vectors of a block, one after the other; all but the last one are whole."""
        channels, lanes, lane = int(self.form.lane.extent.constant or 0), self.lanes, self.form.lane
        with for_loop(scope, span[1], span[0], lanes, CHANNEL, "c") as (inner, at):
            remaining = inner.name(channels - at)

            def emit_masked(mask: ir.Value | None) -> tuple[ir.Step, ...]:
                part = inner.inner({lane.name: at}, lane=lane.name, lanes=lanes, mask=mask)
                emit(ChannelVector(part, at, mask))
                return tuple(part.steps)

            whole = emit_masked(None) if channels >= lanes else ()
            cut = emit_masked(inner.name(first_lanes(remaining, lanes))) if channels % lanes else ()
            both = whole and cut
            inner.steps += (ir.If(remaining >= lanes, whole, cut),) if both else whole or cut


@dataclass(frozen=True)
class ChannelVector:
    """A vector of channels from `at` on, and the scope that computes it."""

    scope: ScalarLowering
    at: ir.Value
    mask: ir.Value | None


class Row:
    """A row of positions, or its part `ends`; for one vector of channels or a block of them."""

    def __init__(
        self, writer: AcrossWriter, scope: ScalarLowering, span: tuple[ir.Value, ir.Value],
        ends: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:  # fmt: skip
        self.writer, self.form, self.scope, self.span = writer, writer.form, scope, span
        self.ends = ends or (constant(0), writer.value(writer.walk.extent))
        self.part: ChannelVector | None = None
        self.flags: dict[Limit, ir.Value] = {}
        self.bases: dict[Size, None] = {}
        self.held: dict[Read, ir.Value] = {}

    def emit(self, part: ChannelVector | None = None) -> None:
        """The positions in bounds, several at a time; those before and after them one by one.

        For one vector, whose held values are loaded first, or for all vectors of a block at each
        position.
        """
        scope, positions = self.scope, self.writer.positions
        self._begin(part)
        start, stop = self.ends
        low, high = self._inside()
        rest = scope.name(low + round_down(high - low, positions))
        self._loop(low, rest, positions, checked=False)
        with for_loop(scope, 2, letter="side") as (ends, side):
            begin, end = select(side.equals(0), start, rest), select(side.equals(0), low, stop)
            self._loop(ends.name(begin), ends.name(end), 1, checked=True, into=ends)

    def emit_checked(self, part: ChannelVector) -> None:
        """Single positions with checked taps; too few positions to hold weights in registers."""
        self.part = part
        self._loop(*self.ends, 1, checked=True)

    def emit_padded(self, part: ChannelVector) -> None:
        """The positions of a row whose windows are in bounds, or padded, along the row."""
        self._begin(part)
        (start, stop), positions = self.ends, self.writer.positions
        rest = self.scope.name(start + round_down(stop - start, positions))
        self._loop(start, rest, positions, checked=False)
        self._loop(rest, stop, 1, checked=False)

    def _begin(self, part: ChannelVector | None) -> None:
        self.part = part
        if part is not None:
            held = self.writer.held
            self.held = {w.read: self._load(part, w, constant(0), 0) for w in held}

    def _inside(self) -> tuple[ir.Value, ir.Value]:
        """The positions whose windows are in bounds along the row."""
        low, high = self.ends
        value, name = self.writer.value, self.scope.name
        spans = {axis.name: axis.extent - 1 for axis in self.form.loops}
        for limit in self._limits(True):
            by = value(limit.index.stride(self.writer.walk.name))
            rest = limit.index.without(self.writer.walk.name)
            first = last = rest.without(*spans)
            for axis, span in spans.items():
                last = last + Affine(rest.stride(axis) * span)
            bound = value(limit.extent) - self.scope.scalar(to_expr(last))
            low, high = narrow_range(
                self.scope, low, high, self.scope.scalar(to_expr(first)), bound, by
            )
        low = name(least(low, self.ends[1]))
        return low, name(greatest(low, high))

    def _limits(self, along: bool) -> Iterator[Limit]:
        """All limits that depend on the position along the row, or all others."""
        walk, found = self.writer.walk.name, set[Limit]()
        for _, windows in self.form.bodies:
            for limit in (limit for window in windows for limit in window.limits):
                if (limit.index.stride(walk) != 0) == along and limit not in found:
                    found.add(limit)
                    yield limit

    def _loop(
        self, low: ir.Value, high: ir.Value, positions: int, checked: bool,
        into: ScalarLowering | None = None,
    ) -> None:  # fmt: skip
        """A loop over blocks of `positions` positions."""
        walk = self.writer.walk.name
        with for_loop(into or self.scope, high, low, positions, walk, "at") as (block, first):
            if self.part is not None:
                self._block(replace(self.part, scope=block), first, positions, checked)
            else:
                emit = partial(self._block, first=first, positions=positions, checked=checked)
                self.writer.vectors(block, self.span, emit)

    def _block(self, part: ChannelVector, first: ir.Value, positions: int, checked: bool) -> None:
        form = self.form
        start = start_of(form, self.writer.lanes)
        sums = [self.writer.context.fresh("a") for _ in range(positions)]
        part.scope.steps += [ir.Declare(name, start) for name in sums]
        with nested_loops(part.scope, self._spans(part.scope, checked), letter="k") as scope:
            self._taps(replace(part, scope=scope), first, sums, checked)
        for position, name in enumerate(sums):
            self._epilogue(part, first + position, name)

    def _spans(self, part: ScalarLowering, checked: bool) -> list[tuple[str, ir.Value, ir.Value]]:
        """The loops over taps that may be in bounds: at this position, or at all positions of the
        row."""
        found, value, scope = [], self.writer.value, part if checked else self.scope
        limits = [*self._limits(False), *(self._limits(True) if checked else ())]
        for axis in self.form.loops:
            span: tuple[ir.Value, ir.Value] = constant(0), value(axis.extent)
            for limit in limits:
                if self._spans_taps(limit, checked) and axis.name in limit.index.indices:
                    first = scope.scalar(to_expr(limit.index.without(axis.name)))
                    by = value(limit.index.stride(axis.name))
                    span = narrow_range(scope, *span, first, value(limit.extent) - first, by)
            found.append((axis.name, *span))
        return found

    def _spans_taps(self, limit: Limit, checked: bool) -> bool:
        """Whether a limit applies to all taps and moves along one tap loop (and, unless `checked`,
        not along the row)."""
        taps = [axis.name for axis in self.form.loops if axis.name in limit.index.indices]
        return (
            len(taps) == 1
            and (limit.index.stride(taps[0]).constant or 0) > 0
            and (checked or self.writer.walk.name not in limit.index.indices)
            and all(any(limit in w.limits for w in windows) for _, windows in self.form.bodies)
        )

    def _taps(
        self, part: ChannelVector, first: ir.Value, sums: Sequence[str], checked: bool
    ) -> None:
        """The taps, grouped by the limits they must meet."""
        walk, scope = self.writer.walk.name, part.scope

        def conditions(body: tuple[Expr, tuple[Window, ...]]) -> tuple[Limit, ...]:
            limits = (limit for window in body[1] for limit in window.limits)
            unproved = (one for one in limits if not self._spans_taps(one, checked))
            return tuple(one for one in unproved if checked or one.index.stride(walk) == 0)

        for limits, bodies in groupby(self.form.bodies, conditions):
            loaded: dict[tuple[str, Affine], ir.Value] = {}
            fine = (
                reduce(and_, [self._in_bounds(scope, limit) for limit in limits])
                if limits
                else None
            )
            with if_block(scope, fine) as inner:
                own = replace(part, scope=inner)
                for expr, windows in bodies:
                    answers = frozenset(window.read.tensor for window in windows)
                    moves = walk in _own_axes(expr, {window.read for window in windows})
                    for position, name in enumerate(sums):
                        here = {walk: inner.name(first + position)} if moves and position else {}
                        tap = inner.inner(here, answers=answers)
                        for window in windows:
                            tap.know(
                                window.read, self._load_window(own, window, first, position, loaded)
                            )
                        found = accumulate_tap(
                            self.form, tap, expr, ir.Get(self.writer.vector, name)
                        )
                        inner.steps += [*tap.steps, ir.Assign(name, found)]

    def _in_bounds(self, scope: ScalarLowering, limit: Limit) -> ir.Value:
        """Whether an index is in bounds; row-invariant conditions are computed once."""
        moving = {self.writer.walk.name, *(axis.name for axis in self.form.loops)}
        if moving & set(limit.index.indices):
            return inside(scope, limit)
        if limit not in self.flags:
            self.flags[limit] = inside(self.scope, limit)
        return self.flags[limit]

    # ---- loading and storing -------------------------------------------------------------------

    def _load_window(
        self, part: ChannelVector, window: Window, first: ir.Value, position: int,
        loaded: dict[tuple[str, Affine], ir.Value],
    ) -> ir.Value:  # fmt: skip
        """The vector of a window: adjacent windows share their loads."""
        if window.read in self.held:
            return self.held[window.read]
        step = window.address.stride(self.writer.walk.name)
        moved = Affine(window.address.constant + step * position, window.address.terms)
        key = window.read.tensor, moved
        if key not in loaded:
            loaded[key] = self._load(part, window, first, position)
        return loaded[key]

    def _load(
        self, part: ChannelVector, window: Window, first: ir.Value, position: int
    ) -> ir.Value:
        """A window's vector at the position `position` after `first`."""
        writer, lane, scope = self.writer, self.form.lane.name, part.scope
        step = window.address.stride(writer.walk.name)
        rest = window.address.without(writer.walk.name, lane)
        near, by = self._near(rest.constant + step * position)
        start = scope.scalar(to_expr(Affine(near, rest.terms)))
        at = start + part.at + first * writer.value(step) + by
        kind = ir.Type(writer.context.types[window.read.tensor].dtype, writer.lanes)
        return scope.name(ir.Load(kind, writer.source(window), at, part.mask))

    def _near(self, offset: Size) -> tuple[Size, int]:
        """An earlier offset and this one's constant distance from it, to share address code."""
        for known in self.bases:
            apart = (offset - known).constant
            if apart is not None:
                return known, apart
        self.bases[offset] = None
        return offset, 0

    def _epilogue(self, part: ChannelVector, position: ir.Value, name: str) -> None:
        """The epilogue at a position, and its store."""
        writer, form, block = self.writer, self.form, part.scope
        total = block.name(ir.Get(writer.vector, name))
        scope = block.inner(
            {writer.walk.name: block.name(position)}, answers=frozenset({PRODUCT}),
            local=lambda read: total if read.tensor == PRODUCT else None,
        )  # fmt: skip
        for output in form.outputs:
            value = scope.value(output.value, writer.context.types[output.tensor].dtype)
            buffer, own = writer.target(output)
            scope.steps.append(ir.Store(buffer, scope.offset(own), value, part.mask))
        block.steps += scope.steps

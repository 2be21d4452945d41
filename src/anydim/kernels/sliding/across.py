"""Windows over places whose channels lie last: vectors along channels, windows walk along a row.

    for each image, each block of channels, each row of the result, each vector of the block
        for each place along the row, some at a time where their windows are inside of the tensor
            for each row of the window that is inside: each tap

What does not change along the row, as weights of a vector of channels, stays in registers; what
windows side by side share is loaded once. Nothing depends on how wide images are, and no lane is
empty but in the last vector of channels. A tap outside of the tensor is left out: what it would
read changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.rows.cells import identity
from anydim.kernels.sliding.block import changes_nothing, combined
from anydim.kernels.sliding.form import Limit, Sliding, Window
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient_up,
    round_down,
    times,
)
from anydim.kernels.write.elements import Context, Elements
from anydim.kernels.write.loops import parallel_loop
from anydim.kernels.write.values import number, operate
from anydim.lang.tree import Axis, Expr, Read
from anydim.lang.tree.affine import Affine, to_expr
from anydim.sizes import Size, ceil_div, product

BLOCK, CHANNEL = "block of channels", "first channel"
TOGETHER = 8  # vectors of channels of a block: their lines lie together, and come so
_HELD = 9  # vectors that stay in registers for a row: with more, the sums would leave them


def walks(form: Sliding, lanes: int) -> bool:
    """Whether vectors are along channels, of which there are enough, and taps can be left out."""
    channels = form.lane.extent.constant
    if channels is None or 2 * channels < lanes or not form.outer:
        return False
    return all(
        all(_fits(window, form) for window in windows)
        and all(changes_nothing(window.read, expr, form) for window in windows if window.limits)
        for expr, windows in form.bodies
    )


def _fits(window: Window, form: Sliding) -> bool:
    """Whether lanes are neighbours, all inside or outside, and the row moves on by known steps."""
    walk, lane = form.outer[-1].name, form.lane.name
    return window.stride == 1 and all(
        limit.index.stride(lane) == 0
        and (limit.index.stride(walk).constant or 0) >= 0
        and limit.index.stride(walk).constant is not None
        for limit in window.limits
    )


def positions_of(form: Sliding, lanes: int) -> Size:
    """Of the launch: rows of the result, for each block of channels."""
    blocks = ceil_div(form.lane.extent, lanes * TOGETHER)
    return product(axis.extent for axis in form.outer[:-1]) * blocks


class AcrossWriter:
    """Writes the body of one kernel: `places` are those that a row takes at a time."""

    def __init__(
        self, form: Sliding, lanes: int, places: int, context: Context, machine: Machine
    ) -> None:
        self.form, self.lanes, self.places, self.context = form, lanes, places, context
        self.vector = ir.Type(form.dtype, lanes)
        self.walk: Axis = form.outer[-1]
        self.value = context.sizes.value
        self.hold = machine.registers >= 32

    def body(self) -> tuple[ir.Step, ...]:
        scope, outer = Elements(self.context), self.form.outer[:-1]
        extents = [(axis.name, self.value(axis.extent)) for axis in outer]
        blocks = (BLOCK, quotient_up(self.value(self.form.lane.extent), self.lanes * TOGETHER))
        parallel_loop(scope, [*extents[:-1], blocks, *extents[-1:]], self._row)
        return tuple(scope.steps)

    def _row(self, row: Elements) -> None:
        """Some vectors, one after the other; they are whole but for the last one."""
        channels, lanes = int(self.form.lane.extent.constant or 0), self.lanes
        name = self.context.fresh("c")
        begin = row.name(times(row.indices[BLOCK], lanes * TOGETHER))
        end = row.name(least(plus(begin, lanes * TOGETHER), channels))
        scope, at = row.inner({CHANNEL: ir.Var(ir.INDEX, name)}), ir.Var(ir.INDEX, name)
        left = scope.name(minus(constant(channels), at))
        whole, cut = list[ir.Step](), list[ir.Step]()
        if channels >= lanes:
            whole = self._vector(scope, at, None)
        if channels % lanes:
            cut = self._vector(scope, at, scope.name(first_lanes(left, lanes)))
        if whole and cut:
            inside = compare("greater_equal", left, lanes)
            scope.steps.append(ir.If(inside, tuple(whole), tuple(cut)))
        else:
            scope.steps += whole or cut
        row.steps.append(loop(name, begin, end, lanes, *scope.steps))

    def _vector(self, row: Elements, at: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        scope = row.inner({self.form.lane.name: at}, lane=self.form.lane.name, lanes=self.lanes,
                          mask=mask)  # fmt: skip
        _Vector(self, scope, at, mask).written()
        return scope.steps


class _Vector:
    """A row of places, of one vector of channels."""

    def __init__(
        self, writer: AcrossWriter, scope: Elements, at: ir.Value, mask: ir.Value | None
    ) -> None:
        self.writer, self.form, self.scope = writer, writer.form, scope
        self.at, self.mask = at, mask
        self.flags: dict[Limit, ir.Value] = {}
        self.bases: dict[Size, None] = {}
        self.held = self._held() if writer.hold else {}

    def _held(self) -> dict[Read, ir.Value]:
        """What is the same for all places, as long as it is not much."""
        moving = {self.writer.walk.name, *(axis.name for axis in self.form.loops)}
        still = [
            window
            for _, windows in self.form.bodies
            for window in windows
            if not window.limits and not moving & set(window.address.indices)
        ]
        if len(still) > _HELD:
            return {}
        return {window.read: self._load(self.scope, window, constant(0), 0) for window in still}

    def written(self) -> None:
        """The places inside, some at a time; those before and behind them one by one."""
        value, scope, places = self.writer.value, self.scope, self.writer.places
        extent = value(self.writer.walk.extent)
        low, high = self._inside(extent)
        rest = scope.name(plus(low, round_down(minus(high, low), places)))
        self._loop(low, rest, places, checked=False)
        side, part = self.writer.context.fresh("side"), scope.inner({})
        begin = either(compare("equal", ir.Var(ir.INDEX, side), 0), constant(0), rest)
        end = either(compare("equal", ir.Var(ir.INDEX, side), 0), low, extent)
        ends = part.name(begin), part.name(end)
        self._loop(*ends, 1, checked=True, into=part)
        scope.steps.append(loop(side, 0, 2, 1, *part.steps))

    def _inside(self, extent: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The places whose windows leave nothing along the row."""
        low: ir.Value = constant(0)
        high: ir.Value = extent
        value, name = self.writer.value, self.scope.name
        spans = {axis.name: axis.extent - 1 for axis in self.form.loops}
        for limit in self._limits(True):
            by = value(limit.index.stride(self.writer.walk.name))
            rest = self._without_walk(limit.index)
            first = last = Affine.of(rest.constant, {n: c for n, c in rest.terms if n not in spans})
            for axis, span in spans.items():
                last = last + Affine(rest.stride(axis) * span)
            below = quotient_up(
                greatest(minus(constant(0), self.scope.scalar(to_expr(first))), 0), by
            )
            room = minus(value(limit.extent), self.scope.scalar(to_expr(last)))
            above = quotient_up(greatest(room, 0), by)
            low, high = name(greatest(low, below)), name(least(high, above))
        low = name(least(low, extent))
        return low, name(greatest(low, high))

    def _limits(self, along: bool) -> Iterator[Limit]:
        """All limits that depend on the place along the row, or all others."""
        walk, seen = self.writer.walk.name, set[Limit]()
        for _, windows in self.form.bodies:
            for limit in (limit for window in windows for limit in window.limits):
                if (limit.index.stride(walk) != 0) == along and limit not in seen:
                    seen.add(limit)
                    yield limit

    def _without_walk(self, form: Affine) -> Affine:
        kept = {name: c for name, c in form.terms if name != self.writer.walk.name}
        return Affine.of(form.constant, kept)

    def _loop(
        self, low: ir.Value, high: ir.Value, places: int, checked: bool,
        into: Elements | None = None,
    ) -> None:  # fmt: skip
        """So many places at a time."""
        into = into or self.scope
        name = self.writer.context.fresh("at")
        block = into.inner({self.writer.walk.name: ir.Var(ir.INDEX, name)})
        self._block(block, ir.Var(ir.INDEX, name), places, checked)
        into.steps.append(loop(name, low, high, places, *block.steps))

    def _block(self, block: Elements, first: ir.Value, places: int, checked: bool) -> None:
        context, form = self.writer.context, self.form
        start = number(form.dtype, identity(form.combine, form.dtype), self.writer.lanes)
        sums = [context.fresh("a") for _ in range(places)]
        block.steps += [ir.Declare(name, start) for name in sums]
        scope, opened = block, list[tuple[Elements, str, ir.Value]]()
        for axis in form.loops:
            name = context.fresh("k")
            opened.append((scope, name, self.writer.value(axis.extent)))
            scope = scope.inner({axis.name: ir.Var(ir.INDEX, name)})
        self._taps(scope, first, sums, checked)
        for outer, name, extent in reversed(opened):
            outer.steps.append(loop(name, 0, extent, 1, *scope.steps))
            scope = outer
        for number_, name in enumerate(sums):
            self._finish(block, plus(first, number_), name)

    def _taps(self, scope: Elements, first: ir.Value, sums: Sequence[str], checked: bool) -> None:
        """Taps, those together that are inside on the same conditions."""
        walk = self.writer.walk.name

        def conditions(body: tuple[Expr, tuple[Window, ...]]) -> tuple[Limit, ...]:
            limits = (limit for window in body[1] for limit in window.limits)
            return tuple(one for one in limits if checked or one.index.stride(walk) == 0)

        for limits, bodies in groupby(self.form.bodies, conditions):
            inner = scope.inner({}) if limits else scope
            loaded: dict[tuple[str, Affine], ir.Value] = {}
            for expr, windows in bodies:
                for place, name in enumerate(sums):
                    tap = inner.inner({})
                    for window in windows:
                        tap.know(window.read, self._shared(inner, window, first, place, loaded))
                    found = combined(self.form, tap, expr, ir.Get(self.writer.vector, name))
                    inner.steps += [*tap.steps, ir.Assign(name, found)]
            if limits:
                fine = [self._fine(scope, limit) for limit in limits]
                whole = fine[0]
                for flag in fine[1:]:
                    whole = operate("and", whole, flag)
                scope.steps.append(ir.If(whole, tuple(inner.steps)))

    def _fine(self, scope: Elements, limit: Limit) -> ir.Value:
        """Whether an index is inside; what is the same for the whole row is asked once."""
        moving = {self.writer.walk.name, *(axis.name for axis in self.form.loops)}
        still = not moving & set(limit.index.indices)
        home = self.scope if still else scope
        if not still or limit not in self.flags:
            at = home.scalar(to_expr(limit.index))
            extent = self.writer.value(limit.extent)
            parts = (compare("greater_equal", at, 0), compare("less", at, extent))
            flag = home.name(ir.Op(ir.FLAG, "and", parts))
            if not still:
                return flag
            self.flags[limit] = flag
        return self.flags[limit]

    # ---- loading and storing -------------------------------------------------------------------

    def _shared(
        self, scope: Elements, window: Window, first: ir.Value, place: int,
        loaded: dict[tuple[str, Affine], ir.Value],
    ) -> ir.Value:  # fmt: skip
        """The vector of a window: windows side by side read the same ones."""
        if window.read in self.held:
            return self.held[window.read]
        step = window.address.stride(self.writer.walk.name)
        moved = Affine(window.address.constant + step * place, window.address.terms)
        key = window.read.tensor, moved
        if key not in loaded:
            loaded[key] = self._load(scope, window, first, place)
        return loaded[key]

    def _load(self, scope: Elements, window: Window, first: ir.Value, place: int) -> ir.Value:
        """A window's vector for the place `place` behind `first`."""
        writer, lane = self.writer, self.form.lane.name
        step = window.address.stride(writer.walk.name)
        rest = self._without_walk(window.address)
        near, by = self._near(rest.constant + step * place)
        terms = {name: c for name, c in rest.terms if name != lane}
        start = scope.scalar(to_expr(Affine.of(near, terms)))
        at = plus(start, self.at, times(first, writer.value(step)), by)
        kind = ir.Type(writer.context.types[window.read.tensor].dtype, writer.lanes)
        buffer = writer.context.buffers[window.read.tensor]
        return scope.name(ir.Load(kind, buffer, at, self.mask))

    def _near(self, offset: Size) -> tuple[Size, int]:
        """An offset that was asked for before, and how far from it this one is."""
        for known in self.bases:
            apart = (offset - known).constant
            if apart is not None:
                return known, apart
        self.bases[offset] = None
        return offset, 0

    def _finish(self, block: Elements, place: ir.Value, name: str) -> None:
        """What follows the reduction at a place, and its store."""
        writer, form = self.writer, self.form
        total = block.name(ir.Get(writer.vector, name))
        scope = block.inner(
            {writer.walk.name: block.name(place)}, answers=frozenset({PRODUCT}),
            local=lambda read: total if read.tensor == PRODUCT else None,
        )  # fmt: skip
        for output in form.outputs:
            value = scope.value(output.value, writer.context.types[output.tensor].dtype)
            at = scope.offset(form.own)
            store = ir.Store(writer.context.buffers[output.tensor], at, value, self.mask)
            scope.steps.append(store)
        block.steps += scope.steps

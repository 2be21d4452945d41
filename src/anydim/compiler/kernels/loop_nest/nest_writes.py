"""Loop IR of one write of a nest: lanes along an axis of the result, along a sum, or none.

elements   for i by lanes: y[i] = ...                      no sums across     for i by lanes: for k:
total += ...; y[i]       each lane has its own sum along      for i: for k by lanes: total += ...;
y[i]       the lanes share one sum
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.codegen.reduction import (
    accumulate,
    accumulator_of,
    combine_pairwise,
    neutral_element,
    terms_of,
)
from anydim.compiler.kernels.codegen.vector_loops import for_loop, if_block, segments, vectors_of
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import convert, operate, variable
from anydim.compiler.kernels.launch import Machine, halved_lanes
from anydim.compiler.kernels.loop_nest.nest_elements import NestElements, Storage
from anydim.compiler.kernels.loop_nest.nest_form import NestForm, one_to_one
from anydim.compiler.kernels.partial_rows import (
    Part,
    limits,
    neutral_literal,
    ordered_axes,
    part_along,
    repeats,
)
from anydim.lang.tree import Apply, Axis, Expr, Index, Literal, Read, Write
from anydim.lang.tree.affine import affine, reads, rewrite
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import product

Range = tuple[ir.Value, ir.Value]


@dataclass(frozen=True)
class Vectorization:
    """How a write is vectorized: the axis of the lanes, if any, and their number.

    `run`, if any, is the same write as one loop: see `as_run`.
    """

    lane: Axis | None
    lanes: int
    along: bool = False  # the lane is a reduced axis
    run: Write | None = None


class WriteCode:
    """Emits one write over `axes`; `ranges` maps every axis to its range.

    `register`, if any, also receives the stored element.
    """

    def __init__(
        self, write: Write, axes: Sequence[Axis], ranges: Mapping[str, Range], form: NestForm,
        vectorized: Vectorization, unroll: int, register: str | None = None,
    ) -> None:  # fmt: skip
        self.write = write
        self.axes = axes
        self.register = register
        self.ranges = ranges
        self.dtype = form.types[write.target].dtype
        single = vectorized.lane is not None and vectorized.lane not in (*axes, *write.reduced)
        self.vectorized = vectorized = Vectorization(None, 1) if single else vectorized
        self.unroll = unroll if vectorized.lanes > 1 else 1
        self.own = frozenset((write.target,))
        self.reduced = ordered_axes((write,), write.reduced)
        self.part, self.body = self._part()

    def _part(self) -> tuple[Part, Expr]:
        """The part of the ranges that the write visits, and its value there."""
        write, lane = self.write, self.vectorized.lane
        if write.reduced:
            apart = {lane.name} if lane is not None and not self.vectorized.along else set()
            neutral: Expr = neutral_literal(write.combine, self.dtype)
            return part_along(write.body, neutral, [axis.name for axis in self.reduced], apart)
        if self.register is not None or write.fresh:
            return (), write.body
        axes = [axis.name for axis in (*self._outer, *((lane,) if lane is not None else ()))]
        same: Expr = Read(write.target, write.indices)
        if write.combine:
            same = neutral_literal(write.combine, self.dtype)
        return part_along(write.body, same, axes)

    def _has_bound(self, axis: Axis) -> bool:
        return any(bound.axis == axis.name for bound in self.part)

    def _range(self, scope: NestElements, axis: Axis) -> Range:
        extent = scope.size(axis.extent)
        return limits(self.part, axis.name, scope, extent, self.ranges[axis.name])

    @property
    def _outer(self) -> list[Axis]:
        return [axis for axis in self.axes if axis is not self.vectorized.lane]

    def full(self, scope: NestElements) -> None:
        """The loops of the write; none of its ranges is empty."""
        self._emit_loops(scope, self._outer, self._cells)

    def empty(self, scope: NestElements) -> None:
        """The write of an empty reduction."""
        neutral = convert(
            neutral_element(*accumulator_of(self.write.combine, self.dtype)), self.dtype
        )
        self._emit_loops(scope, self.axes, lambda s: self._store(s, neutral))

    def _emit_loops(
        self, scope: NestElements, axes: Sequence[Axis], body: Callable[[NestElements], None]
    ) -> None:
        with ExitStack() as loops:
            for axis in axes:
                low, high = self._range(scope, axis)
                loop = for_loop(scope, high, low, axis=axis.name, written=self.own,
                                certain=not self._has_bound(axis))  # fmt: skip
                scope, _ = loops.enter_context(loop)
            body(scope)

    # ---- cells ---------------------------------------------------------------------------------

    def _cells(self, scope: NestElements) -> None:
        """Everything at one point of the outer axes."""
        lane = self.vectorized.lane
        if lane is None or self.vectorized.along:
            self._block([scope.inner({}, written=self.own)], scope)
        else:
            self._vector_loop(scope, lane, self.unroll, self._block)

    def _vector_loop(
        self, scope: NestElements, lane: Axis, unroll: int,
        body: Callable[[list[NestElements], NestElements], None],
    ) -> None:  # fmt: skip
        """A pass over an axis by vectors; `body` gets the unrolled cells and their block."""
        span = self._range(scope, lane)
        if not self._has_bound(lane):
            self._vectors(scope, lane, span, unroll, body)
            return
        some = scope.name(span[0] < span[1])
        with if_block(scope, some, certain=False, written=self.own) as inner:
            self._vectors(inner, lane, span, unroll, body)

    def _vectors(
        self, scope: NestElements, lane: Axis, span: Range, unroll: int,
        body: Callable[[list[NestElements], NestElements], None],
    ) -> None:  # fmt: skip
        lanes = self.vectorized.lanes
        for segment in segments(scope, *span, lanes, unroll):
            block = scope.inner({}, written=self.own)
            with vectors_of(segment, scope, block, lanes) as (inner, starts):
                cells = [
                    inner.inner({lane.name: at}, lane=lane.name, lanes=lanes, mask=segment.mask,
                                written=self.own) for at in starts
                ]  # fmt: skip
                body(cells, inner)

    def _block(self, cells: list[NestElements], into: NestElements) -> None:
        """Some unrolled cells; their steps are appended to `into`."""
        if not self.write.reduced:
            for cell in cells:
                self._store(cell, cell.value(self.body, self.dtype))
                into.merge(cell)
            return
        sums = [_Sum(self, cell, self.unroll if self.vectorized.along else 1) for cell in cells]
        loops = self._sums(cells, sums, self.reduced)
        for cell in cells:
            into.merge(cell)
        into.steps += loops
        for cell, total in zip(cells, sums):
            after = cell.inner({}, certain=False)
            self._store(after, total.value(after))
            into.merge(after)

    def _sums(
        self, scopes: list[NestElements], sums: Sequence[_Sum], axes: Sequence[Axis]
    ) -> list[ir.Step]:
        """The loops of the sums of some cells, which share them; each scope is the body for one
        cell."""
        if not axes:
            for scope, total in zip(scopes, sums):
                total.accumulate(scope, 0, None)
            return []
        if self.vectorized.along and len(axes) == 1:
            block = scopes[0].inner({}, written=self.own)
            sums[0].along(block, axes[0])
            return block.steps
        low, high = self._range(scopes[0], axes[0])
        around = scopes
        if self._has_bound(axes[0]):
            around = [s.inner({}, written=self.own, certain=False) for s in scopes]
        at = variable(scopes[0].context.fresh("k"))
        inner = [s.inner({axes[0].name: at}, written=self.own) for s in around]
        loops = self._sums(inner, sums, axes[1:])
        for other in inner[1:]:
            inner[0].merge(other)
        made = loop(at.name, low, high, 1, *inner[0].steps, *loops)
        if around is scopes:
            return [made]
        for other in around[1:]:
            around[0].merge(other)
        return [ir.If(low < high, (*around[0].steps, made))]

    # ---- storing -------------------------------------------------------------------------------

    def _store(self, scope: NestElements, value: ir.Value) -> None:
        write = self.write
        for index in write.indices:
            if has_checks(index):
                scope.value(index, int64)
        element = Read(write.target, write.indices)
        inside = scope.inside(element)
        if write.combine and not write.fresh:
            function, dtype = accumulator_of(write.combine, self.dtype)
            old = convert(scope.load(element), dtype)
            value = operate(function, *scope.alike([old, convert(value, dtype)]))
            value = convert(scope.name(value), self.dtype)
        value = scope.spread(scope.name(value), scope.lanes)
        mask = scope.both(scope.mask, inside) if scope.lanes > 1 else None
        offset = scope.offset(scope.address(write.target, write.indices))
        buffer = scope.context.storage[write.target].buffer
        store: ir.Step = ir.Store(buffer, offset, value, mask)
        if inside is not None and scope.lanes == 1:
            store = ir.If(inside, (store,))
        scope.steps.append(store)
        if self.register is not None:
            scope.steps.append(ir.Assign(self.register, value))


class _Sum:
    """The accumulators of one cell: a register, or several along a reduced axis."""

    def __init__(self, code: WriteCode, cell: NestElements, copies: int) -> None:
        self.code = code
        self.cell = cell
        self.function, self.dtype = accumulator_of(code.write.combine, code.dtype)
        self.lanes = code.vectorized.lanes if code.vectorized.along else cell.lanes
        context = cell.context
        self.registers = [context.fresh("a") for _ in range(copies)]
        self.neutral = neutral_element(self.function, self.dtype, self.lanes)
        cell.steps += [ir.Declare(name, self.neutral) for name in self.registers]

    def accumulate(self, scope: NestElements, copy: int, mask: ir.Value | None) -> None:
        """Accumulate the element at this point, except for lanes off in `mask`."""
        body, register = self.code.body, self.registers[copy]
        terms = terms_of(scope, body, self.function, self.dtype, self.code.dtype, mask)
        total = accumulate(self.function, ir.Get(self.neutral.type, register), terms)
        scope.steps.append(ir.Assign(register, total))

    def along(self, scope: NestElements, axis: Axis) -> None:
        """A pass over a reduced axis with the lanes."""

        def body(cells: list[NestElements], into: NestElements) -> None:
            for copy, cell in enumerate(cells):
                self.accumulate(cell, copy % len(self.registers), cell.mask)
                into.merge(cell)

        self.code._vector_loop(scope, axis, len(self.registers), body)

    def value(self, scope: NestElements) -> ir.Value:
        """The total, as the element type of the target."""
        parts = [ir.Get(self.neutral.type, name) for name in self.registers]
        total = scope.name(combine_pairwise(self.function, parts))
        if self.lanes > 1 and self.code.vectorized.along:
            total = scope.name(total.reduce_lanes(self.function))
        return scope.name(convert(total, self.code.dtype))


# ---- choice of the lane axis -------------------------------------------------------------------


def as_run(write: Write, form: NestForm) -> Write | None:
    """A write of a whole tensor from the same elements of others, as one loop along its last axis.

    y(i,j) = 2*x(i,j)  i in 0:N, j in 0:M    as    y(0,j) = 2*x(0,j)  j in 0:N*M
    """
    plain = tuple(Index(axis.name) for axis in write.axes)
    shape = tuple(axis.extent for axis in write.axes)
    if len(plain) < 2 or write.reduced or write.indices != plain:
        return None
    indices: tuple[Expr, ...] = (*[Literal(0, int64)] * (len(plain) - 1), plain[-1])

    def body_with(into: Callable[[str], Expr]) -> Expr:
        """The body, with same-shape reads at the same element replaced by `into`."""

        def change(expr: Expr) -> Expr | None:
            if not isinstance(expr, Read) or expr != Read(expr.tensor, plain):
                return None
            return into(expr.tensor) if form.types[expr.tensor].shape == shape else None

        return rewrite(write.body, change)

    remaining = free_axes(body_with(lambda tensor: Literal(0, int64)))
    if remaining or form.types[write.target].shape != shape:
        return None
    body = body_with(lambda tensor: Read(tensor, indices))
    last = replace(write.axes[-1], extent=product(shape))
    return replace(write, indices=indices, axes=(last,), body=body)


def vectorization_of(
    write: Write, form: NestForm, storage: Mapping[str, Storage], machine: Machine
) -> Vectorization:
    """Vectorization along the axis with the most contiguous accesses."""
    none = Vectorization(None, 1)
    options = [(_score(write, axis, storage), axis, False) for axis in write.axes
               if _storable(write, axis, storage)]  # fmt: skip
    if write.reduced:
        last = ordered_axes((write,), write.reduced)[-1]
        options.append((_score(write, last, storage), last, True))
    options = [option for option in options if option[1].extent != 1]
    if not options:
        return none
    score, lane, along = max(options, key=lambda option: (option[0], not option[2]))
    lanes = _lanes(write, form, machine, lane)
    return none if score < 0 or lanes < 2 else Vectorization(lane, lanes, along)


def part_of(write: Write) -> tuple[Part, Expr]:
    """The part of the reduced axes that a write visits, whatever the lanes, and its value there."""
    if not write.reduced or not isinstance(write.body, Apply) or len(write.body.arguments) < 3:
        return (), write.body
    names = [axis.name for axis in ordered_axes((write,), write.reduced)]
    return part_along(write.body, write.body.arguments[2], names)


def _storable(write: Write, axis: Axis, storage: Mapping[str, Storage]) -> bool:
    """Whether the stores of adjacent lanes are contiguous, and may be reordered."""
    if any(free_axes(i) & {axis.name} and affine(i) is None for i in write.indices):
        return False
    if repeats(write.body, [other.name for other in write.reduced], axis.name):
        return False
    offset = storage[write.target].address(write.indices)
    if offset.affine.stride(axis.name) != 1:
        return False
    return axis == write.axes[-1] or one_to_one(write)


def _score(write: Write, axis: Axis, storage: Mapping[str, Storage]) -> int:
    score = 0
    for read in reads(part_of(write)[1]):
        address = storage[read.tensor].address(read.indices, read.flat)
        if any(free_axes(atom) & {axis.name} for atom, _ in address.atoms):
            score -= 4
        else:
            stride = address.affine.stride(axis.name)
            score += 0 if stride == 0 else 1 if stride == 1 else -4
    return score


def _lanes(write: Write, form: NestForm, machine: Machine, lane: Axis) -> int:
    target = form.types[write.target].dtype
    held: DType = accumulator_of(write.combine, target)[1] if write.reduced else target
    found = [form.types[read.tensor].dtype for read in reads(write.body)]
    width = max([target.bytes, held.bytes, *(-(-d.bytes // 2) for d in found)])
    return halved_lanes(machine.lanes_of(width), lane.extent.constant)

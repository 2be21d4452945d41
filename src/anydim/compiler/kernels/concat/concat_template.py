"""The template of concatenations, fused with elementwise work: one loop for each range of an axis.

    for o in outer, block of k:              parts for threads
      for k, d in the block up to P: y = past
      for k, d in the rest of it: y = new    contiguous axes are one loop

No element tests its range, and no load is out of bounds. Where a result reuses the buffer of an
operand, the elements kept in place are not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import pairwise

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import buffers_differ
from anydim.compiler.kernels.codegen.context import condition_flag
from anydim.compiler.kernels.codegen.nontemporal import (
    NONTEMPORAL,
    allow_nontemporal,
    nontemporal_condition,
    nontemporal_pays,
    with_nontemporal_flag,
)
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering, SizeParameters
from anydim.compiler.kernels.codegen.vector_loops import (
    Segment,
    first_lanes,
    if_block,
    nested_loops,
    parallel_loop,
    run_segment,
    segments,
)
from anydim.compiler.kernels.concat.concat_form import (
    ConcatForm,
    concat_form_of,
    copied_from,
    in_place_operands,
    without_units,
)
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.ir import constant, greatest, least
from anydim.compiler.kernels.knobs import VERSIONS, power_of_two
from anydim.compiler.kernels.launch import Launch, halved_lanes
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Task, form_template
from anydim.compiler.kernels.versions import Listed, checked_version, taken_where
from anydim.compiler.kernels.work_estimate import PIECE, cost, grain_size, work
from anydim.lang.tree import Axis, Group
from anydim.lang.tree.affine import reads
from anydim.sizes import (
    ALWAYS,
    NEVER,
    Box,
    Condition,
    Size,
    Truth,
    as_size,
    at_least,
    at_most,
    ceil_div,
    maximum,
    minimum,
    product,
    prove,
    settle,
)

PART = "part of the axis"
SINGLE, SHORT, PARTS = "single_elements", "single_vectors", "parts"  # names of versions
SHORTEST, LONGEST = map(Size.symbol, ("shortest", "longest"))
_LARGER = 16  # factor of the part size where most parts may have no work
_FEW = 16  # lanes of a vector for rows of at most one vector, clamped to those of the schedule


@dataclass(frozen=True)
class Concat:
    """Vectors of `lanes`, unrolled `unroll` times."""

    lanes: int
    unroll: int = 4
    version: str = any_version()


def _propose(form: ConcatForm, task: Task) -> Concat:
    """Vector lanes by the widest type; fewer where the last axis is short."""
    group = task.group
    read = {r.tensor for g in form.groups for s in g.statements for r in reads(s.body)}
    width = max(group.type_of(n).dtype.bytes for n in {*read, *(t.name for t in group.outputs)})
    lanes = task.machine.lanes_of(width)
    most = max((g.statements[0].axes[-1].extent.constant or lanes for g in form.groups), default=1)
    return Concat(halved_lanes(lanes, most))


def _lower(form: ConcatForm, schedule: Concat, task: Task) -> Launch:
    group = without_units(task.group)
    touched = Operands.of(group, (s.body for g in form.groups for s in g.statements))
    context = Context(touched.types, SizeParameters(), task.machine, touched.buffers)
    writer, (flops, moved) = _Writer(form, context, schedule, task.box), work(group)
    heaviest = max(cost(s.body) for g in form.groups for s in g.statements)
    pays = nontemporal_pays(task.machine, heaviest, moved, task.box)
    past = taken_where(schedule.version, NONTEMPORAL, pays, ALWAYS)
    allow_nontemporal(context, past)
    pairs = tuple(writer.kept.items())
    body = with_nontemporal_flag(context, writer.body(), past, pairs)
    others = checked_version(
        schedule.version, (*writer.short, (NONTEMPORAL, past), (PARTS, ALWAYS))
    )
    return touched.launch(
        "concat", context.sizes, body, schedule,
        "piecewise elements along an axis",
        parallel=product(axis.extent for axis in form.outer) * writer.blocks, work=(flops, moved),
        grain=writer.grain, in_place=pairs, versions=others,
    )  # fmt: skip


class _Writer:
    """Emits the body: parts of the axis at one point of the outer loops, range by range."""

    def __init__(self, form: ConcatForm, context: Context, schedule: Concat, box: Box) -> None:
        self.form, self.context, self.schedule, self.box = form, context, schedule, box
        self.kept = in_place_operands(form)
        each = maximum(product(axis.extent for axis in form.inner), 1)
        piece = PIECE * _LARGER if self.kept else PIECE
        self.block = maximum(as_size(piece) // each, 1)  # indices of `axis` in a part
        whole = self._holds(form.axis.extent, "<=", self.block)
        self.blocks = as_size(1) if whole else ceil_div(form.axis.extent, self.block)
        self.few = min(_FEW, schedule.lanes)
        self.short = self._short_versions()

    @property
    def grain(self) -> Size:
        """Parts that are worth a thread."""
        form = self.form
        elements = product(axis.extent for axis in (form.axis, *form.inner))
        statements = [s for group in form.groups for s in group.statements]
        each = max(cost(s.body) + 1 for s in statements)
        moved = max(2 * form.groups[0].type_of(s.target).dtype.bytes for s in statements)
        return grain_size(max(each, moved), minimum(elements, PIECE))

    def value(self, size: Size) -> ir.Value:
        """A size as an int64 scalar."""
        return self.context.sizes.value(size)

    def body(self) -> tuple[ir.Step, ...]:
        """All steps of the main function."""
        kernel = ScalarLowering(self.context)
        stops: list[ir.Value] = []
        for number, stop in enumerate(self.form.stops):
            end = self.value(stop)
            ordered = not stops or self._holds(self.form.stops[number - 1], "<=", stop)
            stops.append(end if ordered else kernel.name(greatest(stops[-1], end)))
        axes = [(axis.name, self.value(axis.extent)) for axis in self.form.outer]
        parts = kernel.inner({})
        if self.blocks.constant == 1 and axes:
            parallel_loop(parts, axes, lambda scope: self._whole(scope, stops))
        else:
            split = [*axes, (PART, self.value(self.blocks))]
            parallel_loop(parts, split, lambda scope: self._part(scope, stops))
        steps = tuple(parts.steps)
        used = [n for (_, when), n in zip(self.short, (1, self.few)) if when != NEVER]
        if used:
            each, firsts = self.value(self._each), (constant(0), *stops)
            lengths = [kernel.name((stop - first) * each) for first, stop in zip(firsts, stops)]
            for lanes in reversed(used):
                steps = self._rows_of_vectors(kernel, stops, lengths, lanes, steps)
        return (*kernel.steps, *steps)

    def _rows_of_vectors(
        self, kernel: ScalarLowering, stops: list[ir.Value], lengths: list[ir.Value], lanes: int,
        otherwise: tuple[ir.Step, ...],
    ) -> tuple[ir.Step, ...]:  # fmt: skip
        """The steps of a version in which every range is at most one vector, where it is used."""
        rows = kernel.inner({})
        some = [first_lanes(rows, length, lanes) if lanes > 1 else None for length in lengths]
        axes = [(axis.name, self.value(axis.extent)) for axis in self.form.outer]
        parallel_loop(rows, axes, lambda scope: self._vectors(scope, stops, some, lanes))
        known = {SHORTEST: reduce(least, lengths), LONGEST: reduce(greatest, lengths)}

        def compare_size(size: Size, relation: str, number: int) -> ir.Value:
            return known[size] <= number if relation == "<=" else known[size] >= number

        used = condition_flag(self._within(lanes), compare_size)
        return (ir.If(used, tuple(rows.steps), otherwise),)

    @property
    def _each(self) -> Size:
        return product(axis.extent for axis in self.form.inner)

    def _within(self, lanes: int) -> Condition:
        """Where every range has 1 to `lanes` elements, over SHORTEST and LONGEST."""
        return at_least(SHORTEST, 1) & at_most(LONGEST, lanes)

    def _short_versions(self) -> Listed:
        """The versions for rows of at most a vector: ranges of one element, which need no mask, and
        others; their conditions over the sizes of the model."""
        name, form = self.form.axis.name, self.form
        apart = any(g.statements[0].axes[-1].name != name for g in form.groups)
        if apart or not form.outer or self.few == 1 or self._long(self.few):
            return ()
        ends = [as_size(0)]
        for stop in form.stops:
            ordered = self._holds(ends[-1], "<=", stop)
            ends.append(stop if ordered else maximum(ends[-1], stop))
        lengths = [(stop - first) * self._each for first, stop in pairwise(ends)]
        known = {"shortest": reduce(minimum, lengths), "longest": reduce(maximum, lengths)}
        conditions = (self._within(lanes).substitute(known) for lanes in (1, self.few))
        version = self.schedule.version
        return tuple(
            (own, settle(taken_where(version, own, when, when), self.box))
            for own, when in zip((SINGLE, SHORT), conditions)
        )

    def _long(self, lanes: int) -> bool:
        """Whether some range always has more elements than one vector."""
        each = self._each
        ranges = zip((as_size(0), *self.form.stops), self.form.stops)
        return any(self._holds((stop - first) * each, ">", lanes) for first, stop in ranges)

    def _holds(self, left: Size, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self.box) is Truth.PROVED

    def _vectors(
        self, scope: ScalarLowering, stops: list[ir.Value], masks: list[ir.Value | None], lanes: int
    ) -> None:
        """Ranges of at most one vector each, with the same number of lanes for all."""
        each = self.value(self._each)
        starts = [scope.name(stop * each) for stop in (constant(0), *stops)]
        for number, (first, mask) in enumerate(zip(starts, masks)):
            group = self._enter(number)
            for copies, made in self._apart(group):
                with if_block(scope, copies) as part:
                    self._cell(made, made.statements[0].axes[-1], lanes, mask, part, first)

    def _whole(self, scope: ScalarLowering, stops: list[ir.Value]) -> None:
        """All ranges of an axis that is one part."""
        starts = zip((as_size(0), *self.form.stops), (constant(0), *stops))
        for number, ((low, first), stop) in enumerate(zip(starts, stops)):
            group = self._enter(number)
            some = self._holds(low, "<", self.form.stops[number])
            with if_block(scope, None if some else first < stop) as inner:
                for copies, made in self._apart(group):
                    with if_block(inner, copies) as part:
                        self._range(part, number, made, first, stop)

    def _part(self, scope: ScalarLowering, stops: list[ir.Value]) -> None:
        """The intersection of a part of the axis with each range."""
        block, extent = self.value(self.block), self.value(self.form.axis.extent)
        first = scope.name(scope.indices[PART] * block)
        last = scope.name(least(first + block, extent))
        for number, stop in enumerate(stops):
            group = self._enter(number)
            high = scope.name(least(last, stop))
            with if_block(scope, first < high) as inner:
                for copies, made in self._apart(group):
                    with if_block(inner, copies) as part:
                        self._range(part, number, made, first, high)
            first = scope.name(greatest(first, stop))

    def _enter(self, number: int) -> Group:
        """Switch the context to one range: its in-bounds indices and its vector alignment.

        Selected by number: different ranges may have equal groups, such as both ends of a circular
        pad.
        """
        lanes = self.schedule.lanes
        low = self.form.stops[number - 1].constant if number else 0
        even = low is not None and low % lanes == 0 and not self.form.inner
        self.context.inside = self.form.inside[number]
        self.context.step = lanes if even and PIECE % lanes == 0 else 0
        return self.form.groups[number]

    def _apart(self, group: Group) -> Iterator[tuple[ir.Value | None, Group]]:
        """The statements of a range: copies, each with the condition that it is not in place, then
        the rest."""
        others = []
        for statement in group.statements:
            read = copied_from(statement)
            if read is None or self.kept.get(statement.target) != read.tensor:
                others.append(statement)
                continue
            buffers = (self.context.buffers[name] for name in (read.tensor, statement.target))
            yield buffers_differ(*buffers), replace(group, statements=(statement,))
        if others:
            yield None, replace(group, statements=tuple(others))

    def _range(
        self, scope: ScalarLowering, number: int, group: Group, low: ir.Value, high: ir.Value
    ) -> None:
        """All elements between two indices of the axis within one range."""
        axes = group.statements[0].axes
        position = [axis.name for axis in axes].index(self.form.axis.name)
        rest = axes[position + 1 :]
        inside, remaining = (product(a.extent for a in some) for some in (self.form.inner, rest))
        each = inside if remaining == 0 else inside.divide_exactly(remaining)
        assert each is not None, "the remaining axes are merged inner ones"
        low, high = (scope.name(at * self.value(each)) for at in (low, high))
        spans = [(low, high), *((constant(0), self.value(axis.extent)) for axis in rest)]
        names = [axis.name for axis in axes[position:]]
        with nested_loops(scope, ((name, *span) for name, span in zip(names[:-1], spans))) as inner:
            self._vector_loop(inner, number, group, axes[-1], *spans[-1])

    def _few(self, number: int) -> bool:
        """Whether a range that is the innermost loop is known to have few elements."""
        if self.form.inner:
            return False
        ends = self.form.stops
        length = ends[number] - ends[number - 1] if number else ends[0]
        return (
            length.constant is not None
            and length.constant <= self.context.machine.limits.single_range
        )

    def _vector_loop(
        self, scope: ScalarLowering, number: int, group: Group, lane: Axis, low: ir.Value,
        high: ir.Value,
    ) -> None:  # fmt: skip
        """A loop over vectors, or over single elements where a range has few."""
        few = self._few(number)
        lanes, unroll = (1, 1) if few else (self.schedule.lanes, self.schedule.unroll)
        for part in segments(scope, low, high, lanes, unroll):
            condition = self._nontemporal(scope, group, lane, part, lanes)
            cell = partial(self._cell, group, lane, lanes, part.mask)
            run_segment(scope, part, lanes, cell, condition)

    def _nontemporal(
        self, scope: ScalarLowering, group: Group, lane: Axis, part: Segment, lanes: int
    ) -> ir.Value | None:
        """Whether the stores of a segment are nontemporal; None: never."""
        if part.high is None or lanes == 1:
            return None
        buffers, types = self.context.buffers, self.context.types
        stored = (
            (buffers[s.target], types[s.target].dtype, own_address(s)) for s in group.statements
        )
        return nontemporal_condition(scope, lane.name, part.low, lanes, stored)

    def _cell(
        self, group: Group, lane: Axis, lanes: int, mask: ir.Value | None, outer: ScalarLowering,
        at: ir.Value, copy: int = 0,
    ) -> None:  # fmt: skip
        """One vector of a range."""
        inner = outer.inner({lane.name: at}, lane=lane.name, lanes=lanes, mask=mask)
        for statement in group.statements:
            value = inner.value(statement.body, self.context.types[statement.target].dtype)
            to = inner.offset(own_address(statement))
            inner.steps.append(ir.Store(self.context.buffers[statement.target], to, value, mask))
        outer.steps += inner.steps


TEMPLATE = form_template(
    "concat", Concat, lambda task: concat_form_of(task.group, task.box), _propose, _lower,
    same_bits=True,
    knobs={
        "lanes": power_of_two(64).with_tries(4, 8, 16),
        "unroll": power_of_two(16).with_tries(1, 2, 4, 8),
        "version": VERSIONS,
    },
)  # fmt: skip

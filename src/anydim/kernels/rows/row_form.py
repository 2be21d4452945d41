"""Matches the row form of a group: the loops of a row, and the vectorized axis."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.lane_patterns import step_for
from anydim.kernels.codegen.nontemporal import allow_nontemporal, with_nontemporal_flag
from anydim.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.kernels.codegen.value_bounds import peaks, totals
from anydim.kernels.inference import free_axes, read_address
from anydim.kernels.ir import Operand
from anydim.kernels.launch import Argument, Launch, Machine, halved_lanes
from anydim.kernels.operands import Operands
from anydim.kernels.rows.call_time_forms import open_strides, stride_variants, unit_form
from anydim.kernels.rows.flatten import all_axes, flatten, own_address, reads_same_elements
from anydim.kernels.rows.fusion_plan import cost, plan_passes, work
from anydim.kernels.rows.partial_rows import (
    Part,
    neutral_literal,
    ordered_axes,
    part_along,
    repeats,
    uncounted,
    without_numbers,
)
from anydim.kernels.rows.row_body import PIECE, RowForm, Setting
from anydim.kernels.rows.row_in_place import in_place
from anydim.kernels.rows.row_passes import RowProgram, lookups
from anydim.kernels.rows.short_rows import Panels, short_form
from anydim.kernels.rows.split_rows import Parts, PhaseProgram, is_cut, shared
from anydim.lang.tree import Apply, Axis, Expr, Group, Index, Read, Statement, Tensor
from anydim.lang.tree.affine import reads, to_expr
from anydim.sizes import NEVER, Box, Size, Truth, as_size, bounds, maximum, minimum, product, prove

LOOKED_UP = 32  # cost of an element read at a looked-up index, in unit operations
PART_WORK = 1 << 18  # unit operations on elements, or bytes read, that are worth a thread
TYPICAL_ROW = 128  # assumed elements of a row of data-dependent length
RAW = " raw"


def row_form(group: Group, across: bool) -> RowForm | None:
    """The form with lanes along the reduced axes, or across them; None when there is none."""
    form = _along(group)
    if form is None or (across and not (form.outer and form.plan.made)):
        return None
    form = replace(form, lane=form.outer[-1]) if across else form
    return _with_parts(form) if _stores_lanes(form) else None


def _with_parts(form: RowForm) -> RowForm | None:
    """The form that visits only the parts of rows that its bounds give.

    None for reductions of a pass over different parts, and where lanes across the rows would visit
    elements that they share for each row, in parts or not.
    """
    group, apart = form.group, {form.lane.name} if form.across else set()
    if form.plan.stored or form.plan.kept:
        return form
    elements = {name for name, kind in form.plan.kinds.items() if kind == "element"}
    row = ordered_axes(group.statements, form.row)
    parts: list[Part] = [()] * form.plan.passes
    statements = {statement.target: statement for statement in group.statements}
    for pass_number in range(form.plan.passes):
        found = []
        for name in form.plan.made_by(pass_number):
            statement, dtype = statements[name], group.type_of(name).dtype
            names = [axis.name for axis in row]
            if form.across and repeats(statement.body, names, form.lane.name):
                return None
            neutral = neutral_literal(statement.combine, dtype)
            part, body = part_along(statement.body, neutral, names, apart)
            statements[name] = statement.with_body(body)
            if any(read.tensor in elements for bound in part for read in reads(bound.value)):
                return form
            found.append(part)
        if len({*map(without_numbers, found)}) > 1:
            return None
        parts[pass_number] = found[0] if found else ()
    if not any(parts):
        return form
    group = replace(group, statements=tuple(statements[s.target] for s in group.statements))
    lane = form.lane if form.across else row[-1]
    return replace(form, group=group, row=row, lane=lane, parts=tuple(parts))


@lru_cache(maxsize=512)
def _along(group: Group) -> RowForm | None:
    """The form with lanes along the reduced axes, whatever the layout of its results."""
    group = flatten(group)
    row = _row_axes(group) if reads_same_elements(group) else None
    if row is None:
        return None
    if not row:
        group = _with_unit_axis(group)
        row = (group.statements[0].axes[-1],)
    names = frozenset(axis.name for axis in row)
    outer = _outer_axes(group, names)
    if outer is None:
        return None
    alone = len(group.statements) == 1
    group, scaled = _factors_last(group, names)
    if not alone and any(_is_contraction(statement) for statement in group.statements):
        return None
    plan = plan_passes(group, names)
    return None if plan is None else RowForm(group, outer, row, row[-1], plan, scaled)


def _row_axes(group: Group) -> tuple[Axis, ...] | None:
    """The reduced axes; without reductions, the last axis of the first result; () for none."""
    reduced = [s for s in group.statements if s.reduced]
    if not reduced:
        axes = max((s.axes for s in group.statements), key=len)
        return axes[-1:]
    names = {axis.name for axis in reduced[0].reduced}
    if any({axis.name for axis in s.reduced} != names for s in reduced):
        return None
    for statement in group.statements:
        if names <= {axis.name for axis in statement.axes}:
            return tuple(axis for axis in statement.axes if axis.name in names)
    return reduced[0].reduced


def _outer_axes(group: Group, row: frozenset[str]) -> tuple[Axis, ...] | None:
    """The axes shared by all statements, in the order of the last one."""
    outer = tuple(axis for axis in group.statements[-1].axes if axis.name not in row)
    wanted = {axis.name for axis in outer}
    for statement in group.statements:
        if {axis.name for axis in statement.axes} - row != wanted:
            return None
    return outer


def _factors_last(group: Group, row: frozenset[str]) -> tuple[Group, frozenset[str]]:
    """Turn sums of scaled elements into scaled sums: a mean divides once per row, not per element.

    Also returns the targets that became scaled sums; they are 0 for an empty row.
    """
    statements: list[Statement] = []
    raw: list[Tensor] = []
    for statement in group.statements:
        dtype = group.type_of(statement.target).dtype
        rest, scale = _factors(statement.body, row)
        if statement.combine != "add" or not dtype.is_float or not scale:
            statements.append(statement)
            continue
        tensor = Tensor(statement.target + RAW, group.type_of(statement.target))
        raw.append(tensor)
        total: Expr = Read(tensor.name, (to_expr(own_address(statement)),), flat=True)
        for function, factor in reversed(scale):
            total = Apply(function, (total, factor))
        statements.append(replace(statement, target=tensor.name, body=rest))
        statements.append(replace(statement, body=total, combine="", reduced=()))
    group = replace(group, statements=tuple(statements), temporaries=(*group.temporaries, *raw))
    return group, frozenset(tensor.name.removesuffix(RAW) for tensor in raw)


def _factors(expr: Expr, row: frozenset[str]) -> tuple[Expr, list[tuple[str, Expr]]]:
    """Split off the factors and divisors of an expression that are constant along the row."""
    found: list[tuple[str, Expr]] = []
    while isinstance(expr, Apply) and expr.function in ("mul", "div"):
        left, right = expr.arguments
        if not free_axes(right) & row and free_axes(left) & row:
            found.append((expr.function, right))
            expr = left
        elif expr.function == "mul" and not free_axes(left) & row and free_axes(right) & row:
            found.append(("mul", left))
            expr = right
        else:
            break
    return expr, found


def _with_unit_axis(group: Group) -> Group:
    unit = Axis("unit axis", as_size(1))
    return replace(
        group, statements=tuple(replace(s, axes=(*s.axes, unit)) for s in group.statements)
    )


def _stores_lanes(form: RowForm) -> bool:
    """Whether all vector stores are contiguous."""
    outputs = {tensor.name for tensor in form.group.outputs}
    for statement in form.group.statements:
        by_vectors = form.across or form.plan.kinds[statement.target] == "element"
        kept = statement.target in outputs or statement.target in form.plan.kept
        if by_vectors and kept and own_address(statement).stride(form.lane.name).constant != 1:
            return False
    return True


def _is_contraction(statement: Statement) -> bool:
    """Whether a sum of products lacks an axis in each factor, so that elements are reused."""
    body = statement.body
    if statement.combine != "add" or not isinstance(body, Apply) or body.function != "mul":
        return False
    factors = [free_axes(factor) for factor in body.arguments if reads(factor)]
    written = {axis.name for axis in statement.axes}
    return len(factors) == 2 and all(written - factor for factor in factors)


# ---- choices -----------------------------------------------------------------------------------


def lane_score(form: RowForm) -> int:
    """Score of the reads along the lanes: contiguous ones add, scattered ones subtract."""
    score = 0
    for statement in form.group.statements:
        if form.plan.kinds[statement.target] == "scalar":
            continue
        for read in reads(statement.body):
            if read.tensor not in form.plan.kinds:
                score += _read_score(read, form)
    return score


def gathers(form: RowForm) -> int:
    """The number of reads of reductions whose lanes are at looked-up indices."""
    bodies = (s.body for s in form.group.statements if s.target in form.plan.made)
    return sum(len(lookups(body, form.lane.name)) for body in bodies)


def _read_score(read: Read, form: RowForm) -> int:
    address = read_address(read, form.group.type_of(read.tensor).shape)
    stride = address.affine.stride(form.lane.name).constant
    if stride == 0:
        return 0
    return 1 if stride == 1 else -4


def lanes_for(form: RowForm, machine: Machine) -> int:
    """Vector lanes by the widest type of elements that are stored, accumulated or read."""
    made = {n for n, k in form.plan.kinds.items() if k != "scalar" or form.across}
    stored = [form.group.type_of(name).dtype for name in made]
    read = [
        form.group.type_of(r.tensor).dtype
        for s in form.group.statements
        for r in reads(s.body)
        if s.target in made
    ]
    width = max([d.bytes for d in stored] + [-(-d.bytes // 2) for d in read], default=4)
    return halved_lanes(machine.lanes_of(width), form.lane.extent.constant)


# ---- launch ------------------------------------------------------------------------------------


def _step(form: RowForm, lanes: int) -> int:
    """Distance between vectors: the lanes, if across rows or if elements are reduced."""
    if form.across or not form.independent:
        return lanes
    read = (i for s in form.group.statements for r in reads(s.body) for i in r.indices)
    return step_for((*read, *(s.body for s in form.group.statements)), form.lane.name, lanes)


def row_launch(
    name: str, form: RowForm, schedule: Any, box: Box, machine: Machine, reason: str
) -> Launch:
    """The launch of a form with the `lanes` and `unroll` of a schedule."""
    lanes, unroll = schedule.lanes, schedule.unroll
    longest = bounds(form.lane.extent, box).high
    form = replace(form, pieces=bool(form.outer) and form.independent and longest > 2 * PIECE)
    apart = shared(form, box, machine)
    form = replace(form, cut=is_cut(form, box))
    touched = Operands.of(form.group, form.expressions)
    context = _context(form, touched, machine, lanes)
    sizes, (flops, moved) = context.sizes, work(form.group, _uncounted(form))
    if form.independent:
        heaviest = max(cost(statement.body) for statement in form.group.statements)
        allow_nontemporal(context, heaviest, moved, box)
    short = _short(form, context, box)
    program = RowProgram(Setting(form, context, lanes, unroll), short)
    rows = product(axis.extent for axis in form.row)
    never_empty = prove(rows, ">=", 1, box) is Truth.PROVED
    opened = open_strides(form, box)
    body = stride_variants(
        form, opened, sizes.value,
        lambda variant: RowProgram(
            Setting(variant, context, lanes, unroll), short
        ).body(never_empty),
    )  # fmt: skip
    unit = None if opened else unit_form(form, box, _along)
    if unit is not None and lane_score(unit) > 0:
        inside = replace(context, step=0 if unit.whole else lanes)
        units = RowProgram(Setting(unit, inside, lanes, unroll), unit=True).body(True)
        one = sizes.value(form.lane.extent).equals(1)
        body = (ir.If(one, units, body),)
    pairs = in_place(form)
    return touched.launch(
        name, sizes, with_nontemporal_flag(context, body, moved, pairs), schedule, reason,
        parallel=apart.where(0, program.parallel),
        work=(apart.where(0, flops), apart.where(0, moved)), grain=_grain(program),
        scratch=program.scratch, in_place=pairs,
    )  # fmt: skip


def _uncounted(form: RowForm) -> dict[str, set[str]]:
    """The axes that do not multiply the operations of reductions over parts of rows."""
    rows = [axis.name for axis in form.outer]
    return {name: uncounted(form.part(at), rows) for name, at in form.plan.made.items()}


@dataclass(frozen=True)
class RowPhase:
    """Launch number `phase` of those for long rows that threads share."""

    lanes: int
    unroll: int
    phase: int


def phases(form: RowForm, box: Box, machine: Machine) -> int:
    """The number of launches before a form's own launch, for rows that threads share; 0: none."""
    if shared(form, box, machine) == NEVER:
        return 0
    outputs = {tensor.name for tensor in form.group.outputs}
    scalars = any(form.plan.kinds[name] != "element" for name in outputs)
    return form.plan.passes + scalars


def phase_launch(
    form: RowForm, schedule: RowPhase, box: Box, machine: Machine
) -> tuple[Launch, tuple[Tensor, ...]]:
    """The launch of a phase, and the tensors passed between phases."""
    touched = Operands.of(form.group, form.expressions)
    context = _context(form, touched, machine, schedule.lanes)
    setting = Setting(form, context, schedule.lanes, schedule.unroll)
    apart = shared(form, box, machine)
    parts = Parts.of(setting)
    program = PhaseProgram(setting, parts, schedule.phase)
    steps = program.steps()
    own = tuple(Operand(t.name, t.type.dtype, written=True) for t in parts.tensors)
    arguments = (*touched.arguments, *(Argument(t.name) for t in parts.tensors))
    touched = replace(touched, operands=(*touched.operands, *own), arguments=arguments)
    count = phases(form, box, machine)
    flops, moved = (apart.where(estimate, 0) // count for estimate in work(form.group))
    launch = touched.launch(
        "rows_phase", context.sizes, steps, schedule, "pieces of long rows, shared by threads",
        parallel=apart.where(program.positions, 0), work=(flops, moved), in_place=in_place(form),
        grain=_grain(program) if schedule.phase < form.plan.passes else 1,
    )  # fmt: skip
    return replace(
        launch, in_place=()
    ), parts.tensors  # only the last launch declares in-place results


def _context(form: RowForm, touched: Operands, machine: Machine, lanes: int) -> Context:
    group = form.group
    return Context(
        touched.types,
        SizeParameters(),
        machine,
        touched.buffers,
        step=0 if form.whole or form.parts else _step(form, lanes),
        totals=totals(group),
        peaks=peaks(group),
        inside=frozenset(
            (Index(axis.name), axis.extent) for s in group.statements for axis in all_axes(s)
        ),
    )


def _short(form: RowForm, context: Context, box: Box) -> Setting | None:
    """The setting for rows that do not fill a vector; None where no row is that short."""
    widest = max(t.dtype.bytes for t in context.types.values())
    lanes = context.machine.lanes_of(max(4, widest))
    found = short_form(form, box, lanes)
    return None if found is None else Setting(found, context, lanes, 1, Panels(found).names())


def _grain(program: RowProgram) -> Size:
    """Indices of the parallel range that make a part worth a thread."""
    form = program.form
    statements, lane = form.group.statements, form.lane.name
    operations = sum(cost(s.body) + 1 + LOOKED_UP * len(lookups(s.body, lane)) for s in statements)
    each = max(operations, _moved(form))
    if form.whole:
        return grain_size(each, as_size(1))
    if program.shares is not None:
        return grain_size(each, as_size(program.setting.width if form.across else 1))
    if form.parts:
        return grain_size(
            each, as_size(TYPICAL_ROW * (program.setting.width if form.across else 1))
        )
    elements = product(axis.extent for axis in form.row)
    if form.pieces or isinstance(program, PhaseProgram):
        elements = minimum(elements, PIECE)
    return grain_size(each, elements * (program.setting.width if form.across else 1))


def _moved(form: RowForm) -> int:
    """Bytes read per element of a row, if nothing is written per element.

    Results are excluded: their pages are faulted in one by one, so writes do not scale like reads.
    """
    if form.plan.stored:
        return 0
    found = {r.tensor for s in form.group.statements for r in reads(s.body)
             if form.row[-1].name in free_axes(r)}  # fmt: skip
    return sum(form.group.type_of(name).dtype.bytes for name in found - form.plan.kinds.keys())


def grain_size(each: float, elements: Size) -> Size:
    """The number of indices worth a thread, each with `elements` of cost `each`."""
    each = each or 1.0  # the cost of an empty sum
    known = elements.constant
    if known is not None:
        return as_size(max(1, round(PART_WORK / (each * max(1, known)))))
    return maximum(as_size(round(PART_WORK / each)) // maximum(elements, 1), 1)

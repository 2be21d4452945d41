"""Launches of row kernels: one with all versions, and those for long rows that threads share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.lane_patterns import step_for
from anydim.compiler.kernels.codegen.nontemporal import (
    NONTEMPORAL,
    allow_nontemporal,
    nontemporal_pays,
    with_nontemporal_flag,
)
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.codegen.value_bounds import peaks, totals
from anydim.compiler.kernels.codegen.vector_loops import START, STOP
from anydim.compiler.kernels.flatten import all_axes
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import Operand
from anydim.compiler.kernels.launch import Argument, Launch, Machine
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.partial_rows import uncounted_axes
from anydim.compiler.kernels.rows.row_body import RowForm, Setting
from anydim.compiler.kernels.rows.row_in_place import in_place
from anydim.compiler.kernels.rows.row_passes import RowProgram, lookups
from anydim.compiler.kernels.rows.row_versions import row_versions
from anydim.compiler.kernels.rows.split_rows import (
    SHARED,
    PhaseProgram,
    PieceResults,
    is_cut,
    share_condition,
)
from anydim.compiler.kernels.schedule import ANY, any_version
from anydim.compiler.kernels.versions import (
    Listed,
    Steps,
    Version,
    listed_versions,
    no_version,
    taken_where,
    usable_versions,
    versioned_steps,
)
from anydim.compiler.kernels.work_estimate import PIECE, TYPICAL_ROW, cost, grain_size, work
from anydim.lang.tree import Index, Tensor
from anydim.lang.tree.affine import reads
from anydim.sizes import (
    ALWAYS,
    NEVER,
    Box,
    Condition,
    Size,
    Truth,
    as_size,
    bounds,
    minimum,
    product,
    prove,
)

LOOKED_UP = 32  # cost of an element read at a looked-up index, in unit operations


def _step(form: RowForm, lanes: int) -> int:
    """Distance between vectors: the lanes, if across rows or if elements are reduced."""
    if form.across or not form.independent:
        return lanes
    read = (i for s in form.group.statements for r in reads(s.body) for i in r.indices)
    return step_for((*read, *(s.body for s in form.group.statements)), form.lane.name, lanes)


def row_launch(
    name: str, form: RowForm, schedule: Any, box: Box, machine: Machine, reason: str
) -> Launch:
    """The launch of a form with the `lanes`, `unroll` and `version` of a schedule."""
    lanes, unroll = schedule.lanes, schedule.unroll
    longest = bounds(form.lane.extent, box).high
    form = replace(form, pieces=bool(form.outer) and form.independent and longest > 2 * PIECE)
    apart = share_condition(form, schedule.version, box, machine)
    form = replace(form, cut=is_cut(form, box))
    touched = Operands.of(form.group, form.expressions)
    context = _context(form, touched, machine, lanes)
    sizes, (flops, moved) = context.sizes, work(form.group, _uncounted_axes(form))
    forced, past = schedule.version, NEVER
    if form.independent:
        heaviest = max(cost(statement.body) for statement in form.group.statements)
        pays = nontemporal_pays(machine, heaviest, moved, box)
        past = taken_where(forced, NONTEMPORAL, pays, ALWAYS)
        allow_nontemporal(context, past)
    program = RowProgram(Setting(form, context, lanes, unroll))
    found = row_versions(form, context, schedule, box)
    if (forced == SHARED and apart == NEVER) or (forced == NONTEMPORAL and past == NEVER):
        raise no_version(forced, [version.name for version in found])
    if forced == NONTEMPORAL:
        forced = found[-1].name
    versions = usable_versions(found, ANY if forced == SHARED else forced)
    body = versioned_steps(versions, sizes)
    rows = product(axis.extent for axis in form.row)
    if not form.whole and prove(rows, ">=", 1, box) is not Truth.PROVED:
        body = (ir.If(sizes.value(rows) > 0, body, program.empty_rows()),)
    body = (ir.If(START < STOP, body),)
    pairs = in_place(form)
    return touched.launch(
        name, sizes, with_nontemporal_flag(context, body, past, pairs), schedule, reason,
        parallel=apart.where(0, program.parallel),
        work=(apart.where(0, flops), apart.where(0, moved)), grain=_grain(program),
        scratch=program.scratch, in_place=pairs,
        versions=_list_versions(versions, apart, past),
    )  # fmt: skip


def _list_versions(
    versions: Sequence[Version[Steps]], shared: Condition, nontemporal: Condition
) -> Listed:
    """The names and conditions of versions; stores of the last one may be nontemporal."""
    others = listed_versions(versions, ((SHARED, shared),))
    found = (*others[:-1], (NONTEMPORAL, nontemporal), others[-1])
    return tuple(each for each in found if each[1] != NEVER)


def _uncounted_axes(form: RowForm) -> dict[str, set[str]]:
    """The axes that do not multiply the operations of reductions over parts of rows."""
    rows = [axis.name for axis in form.outer]
    return {name: uncounted_axes(form.part(at), rows) for name, at in form.plan.made.items()}


@dataclass(frozen=True)
class RowPhase:
    """Launch number `phase` of those for long rows that threads share."""

    lanes: int
    unroll: int
    phase: int
    version: str = any_version()


def phases(form: RowForm, version: str, box: Box, machine: Machine) -> int:
    """The number of launches before a form's own launch, for rows that threads share; 0: none."""
    if share_condition(form, version, box, machine) == NEVER:
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
    apart = share_condition(form, schedule.version, box, machine)
    parts = PieceResults.of(setting)
    program = PhaseProgram(setting, parts, schedule.phase)
    steps = program.steps()
    own = tuple(Operand(t.name, t.type.dtype, written=True) for t in parts.tensors)
    arguments = (*touched.arguments, *(Argument(t.name) for t in parts.tensors))
    touched = replace(touched, operands=(*touched.operands, *own), arguments=arguments)
    count = phases(form, schedule.version, box, machine)
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


def _grain(program: RowProgram) -> Size:
    """Indices of the parallel range that make a part worth a thread."""
    form = program.form
    statements, lane = form.group.statements, form.lane.name
    operations = sum(cost(s.body) + 1 + LOOKED_UP * len(lookups(s.body, lane)) for s in statements)
    each = max(operations, _bytes_read(form))
    part = program.setting.context.machine.limits.part_work
    if form.whole:
        return grain_size(each, as_size(1), part)
    if program.shares is not None:
        return grain_size(each, as_size(program.setting.width if form.across else 1), part)
    if form.parts:
        return grain_size(
            each, as_size(TYPICAL_ROW * (program.setting.width if form.across else 1)), part
        )
    elements = product(axis.extent for axis in form.row)
    if form.pieces or isinstance(program, PhaseProgram):
        elements = minimum(elements, PIECE)
    return grain_size(each, elements * (program.setting.width if form.across else 1), part)


def _bytes_read(form: RowForm) -> int:
    """Bytes read per element of a row, if nothing is written per element.

    Results are excluded: their pages are faulted in one by one, so writes do not scale like reads.
    """
    if form.plan.stored:
        return 0
    found = {r.tensor for s in form.group.statements for r in reads(s.body)
             if form.row[-1].name in free_axes(r)}  # fmt: skip
    return sum(form.group.type_of(name).dtype.bytes for name in found - form.plan.kinds.keys())

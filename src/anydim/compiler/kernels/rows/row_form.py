"""Matches the row form of a group: the loops of a row, and the vectorized axis."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from anydim.compiler.kernels.flatten import flatten, own_address, reads_same_elements
from anydim.compiler.kernels.inference import free_axes, read_address
from anydim.compiler.kernels.launch import Machine, halved_lanes
from anydim.compiler.kernels.partial_rows import (
    Part,
    neutral_literal,
    ordered_axes,
    part_along,
    repeats,
    without_numbers,
)
from anydim.compiler.kernels.rows.fusion_plan import plan_passes
from anydim.compiler.kernels.rows.row_body import RowForm
from anydim.compiler.kernels.rows.row_passes import lookups
from anydim.lang.tree import Apply, Axis, Expr, Group, Read, Statement, Tensor
from anydim.lang.tree.affine import reads, to_expr
from anydim.sizes import as_size

RAW = " raw"


def row_form(group: Group, across: bool) -> RowForm | None:
    """The form with lanes along the reduced axes, or across them; None when there is none."""
    form = row_form_along(group)
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
def row_form_along(group: Group) -> RowForm | None:
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

"""In-place results of row kernels: which results may share an operand's buffer.

A result is written element by element. If the operand is read only at the index of that element,
and by no pass after the one that writes it, both may share a buffer: all inputs of a vector of
elements are loaded before any of it is stored.

    y(r,c) = x(r,c) + b(c)                        y in place of x
    y(r,c) = x(r,c) / total(r)                    y in place of x: the pass for `total` came before
    e(r,c) = exp(x(r,c)), y(r,c) = e(r,c)*x(r,c)  not where e is kept in y between two passes
"""

from __future__ import annotations

from anydim.compiler.kernels.flatten import same_point
from anydim.compiler.kernels.rows.fusion_plan import needed_elements
from anydim.compiler.kernels.rows.row_body import RowForm
from anydim.lang.tree import Statement, Tensor
from anydim.lang.tree.affine import reads


def in_place(form: RowForm) -> tuple[tuple[str, str], ...]:
    """Pairs (result, operand) that may share a buffer; see `Launch.in_place`."""
    read, written = _last_read(form), _first_written(form)
    return tuple(
        (statement.target, tensor.name)
        for statement in form.group.statements
        if statement.target in written
        for tensor in form.group.inputs
        if read.get(tensor.name, written[statement.target] + 1) <= written[statement.target]
        and _same_elements(form, statement, tensor)
    )


def _same_elements(form: RowForm, statement: Statement, tensor: Tensor) -> bool:
    """Whether an operand of the same element size is read only at the index of the result's
    element."""
    if form.group.type_of(statement.target).dtype.bytes != tensor.type.dtype.bytes:
        return False
    return all(
        same_point(read, statement)
        for each in form.group.statements
        for read in reads(each.body)
        if read.tensor == tensor.name
    )


def _first_written(form: RowForm) -> dict[str, int]:
    """The first pass that writes into the buffer of each elementwise result."""
    first = dict(form.plan.stored)
    for kept in form.plan.kept.values():
        if kept.output is not None:
            first[kept.output] = min(first[kept.output], kept.first)
    return first


def _last_read(form: RowForm) -> dict[str, int]:
    """The last pass that reads each tensor for elements or reductions."""
    plan = form.plan
    statements = {statement.target: statement for statement in form.group.statements}
    kept = {name: each.first for name, each in plan.kept.items()}
    last: dict[str, int] = {}
    for pass_number in range(plan.passes):
        for name in needed_elements(
            pass_number, statements, plan.kinds, {**plan.made, **plan.stored}, kept
        ):
            if kept.get(name, pass_number) >= pass_number:  # else the kept element is loaded
                last.update((read.tensor, pass_number) for read in reads(statements[name].body))
    return last

"""Lowers one assignment to one statement: ranges, masks, bounds of reads, element types."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.dtypes import DType, boolean
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.expand import Expander
from anydim.lang.resolve.extents import Work, axes_of, infer, mask_uneven_ranges, where_ranges
from anydim.lang.resolve.inbounds import check_reads
from anydim.lang.surface.syntax import Assignment, Name, Spread
from anydim.lang.tree import Statement, TensorType
from anydim.lang.tree.typing import TypeProblem, identity, infer_types


def expand_statement(
    assignment: Assignment, binding: Binding, tensors: Mapping[str, TensorType]
) -> tuple[Statement, DType]:
    """The statement and the element type of its target; raises LanguageError if it is invalid.

    Guards that its reads need are added to the binding.
    """
    expander = Expander(binding, tensors)
    left = _left_indices(assignment, expander)
    work = Work(assignment, binding, tensors, expander, left, expander.expand(assignment.value))
    where_ranges(work)
    check_reads(work, infer(work))
    return _finish(work)


def _left_indices(assignment: Assignment, expander: Expander) -> list[str]:
    left: list[str] = []
    for term in assignment.indices:
        if isinstance(term, Spread):
            left += [axis.name for axis in expander.axes_of(term)]
        elif isinstance(term, Name):
            expander.indices.setdefault(term.name, term.position)
            left.append(term.name)
    return left


def _finish(work: Work) -> tuple[Statement, DType]:
    assignment = work.assignment
    try:
        body, dtype = infer_types(work.body, work.tensors)
        if work.masks:
            body = mask_uneven_ranges(work, body, identity(assignment.combine or "add", dtype))
    except TypeProblem as problem:
        raise work.type_error(problem) from None
    right = work.right
    combine = assignment.combine if right else ""
    check_reduction(work, combine, dtype)
    statement = Statement(
        assignment.target, axes_of(work, work.left), body, combine, axes_of(work, right)
    )
    return statement, dtype


def check_reduction(work: Work, combine: str, dtype: DType) -> None:
    """Raise LanguageError for an element type that a reduction does not support."""
    assignment = work.assignment
    if combine and dtype.stored:
        problem = f"a reduction does not support {dtype}, a storage-only type"
        raise work.error(assignment.position, problem, "convert it: float(...)")
    if combine in ("add", "mul") and dtype == boolean:
        raise work.error(
            assignment.position, "a sum or product needs numbers, not bool", "write int32(...)"
        )

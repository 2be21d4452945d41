"""The template of groups without reductions: each element on its own, in one sweep.

Loops whose reads all run on contiguously are one loop; where nothing is broadcast, a tensor of any
rank is one long vector.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.rows.form import lanes_for, row_form, row_launch
from anydim.kernels.template import Template
from anydim.lang.tree import Group
from anydim.sizes import Box


@dataclass(frozen=True)
class Pointwise:
    """`lanes` wide vectors, `unroll` of them side by side."""

    lanes: int
    unroll: int = 4


def match(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Pointwise | None:
    """A schedule for a group whose statements all run over the same elements; else None."""
    if any(statement.reduced for statement in group.statements):
        return None
    form = row_form(group, across=False)
    return None if form is None else Pointwise(lanes_for(form, machine))


def lower(
    group: Group, schedule: Pointwise, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    form = row_form(group, across=False)
    assert form is not None
    return row_launch(
        "pointwise", form, schedule, box, machine, "elements that depend on no other element"
    )


TEMPLATE = Template("pointwise", Pointwise, match, lower, extends=True)

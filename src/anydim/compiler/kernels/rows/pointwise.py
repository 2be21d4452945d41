"""The template of groups without reductions: independent elements, in one pass.

Loops whose reads are all contiguous are merged; without broadcasts, a tensor of any rank is one
long vector.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels.knobs import VERSIONS, power_of_two
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.rows.row_body import RowForm
from anydim.compiler.kernels.rows.row_form import lanes_for, row_form
from anydim.compiler.kernels.rows.row_launch import row_launch
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Task, form_template


@dataclass(frozen=True)
class Pointwise:
    """Vectors of `lanes`, unrolled `unroll` times."""

    lanes: int
    unroll: int = 4
    version: str = any_version()


def _form(task: Task) -> RowForm | None:
    """The form of a group whose statements all run over the same elements."""
    reduces = any(statement.reduced for statement in task.group.statements)
    return None if reduces else row_form(task.group, across=False)


def _lower(form: RowForm, schedule: Pointwise, task: Task) -> Launch:
    reason = "independent elements"
    return row_launch("pointwise", form, schedule, task.box, task.machine, reason)


TEMPLATE = form_template(
    "pointwise", Pointwise, _form, lambda form, task: Pointwise(lanes_for(form, task.machine)),
    _lower, extends=True, same_bits=True,
    knobs={
        "lanes": power_of_two(64).with_tries(4, 8, 16, everywhere=(4, 8, 16)),
        "unroll": power_of_two(16).with_tries(1, 2, 4, 8, everywhere=(1, 2, 4, 8)),
        "version": VERSIONS,
    },
)  # fmt: skip

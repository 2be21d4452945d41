"""The template of softmax, layer normalization and similar: reductions fused with elementwise work.

All statements share their outer loops; every reduction runs over the same row axes. Axes of the
same name in different statements are the same loop (fusion names them so).

    mean(r) +=! x(r,c) / C;  v(r) +=! (x(r,c) - mean(r))**2 / C;  y(r,c) = ...
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.kernels.knobs import FLAG, VERSIONS, power_of_two
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.rows.row_body import RowForm
from anydim.compiler.kernels.rows.row_form import gathers, lane_score, lanes_for, row_form
from anydim.compiler.kernels.rows.row_launch import RowPhase, phase_launch, phases, row_launch
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Template
from anydim.lang.tree import Group, Tensor
from anydim.sizes import Box, product

GATHER = 4  # contiguous reads that a gather costs
SHORT_ROW = 32  # elements; reducing the lanes of a shorter row costs as much as the row


@dataclass(frozen=True)
class Rows:
    """Vectors of `lanes`, unrolled `unroll` times, along the rows or across them."""

    lanes: int
    unroll: int = 4
    across: bool = False
    version: str = any_version()


def match(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Rows | None:
    """The schedule of a group with reductions over one row; None for other groups."""
    if not any(statement.reduced for statement in group.statements):
        return None
    forms = [row_form(group, across) for across in (False, True)]
    fitting = [form for form in forms if form is not None]
    if not fitting:
        return None
    form = max(fitting, key=_merit)
    return Rows(lanes_for(form, machine), 4, form.across)


def _merit(form: RowForm) -> tuple[bool, int, bool]:
    """Ranks forms: rows long enough for vectors, then contiguous reads, of which a gather costs
    several; ties go to lanes along the row.

    Short adjacent rows do not count against lanes along the row: see `short_rows.py`.
    """
    count = product(axis.extent for axis in form.row).constant
    short = count is not None and count < SHORT_ROW and not form.across and len(form.outer) > 1
    return not short, lane_score(form) - GATHER * gathers(form), not form.across


def lower(
    group: Group, schedule: Rows, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group; OptionError for lanes in a direction that it does not have."""
    form = _form_of(group, schedule)
    direction = "across" if schedule.across else "along"
    return row_launch(
        "rows", form, schedule, box, machine,
        f"row reductions fused with elementwise work; lanes {direction} the row",
    )  # fmt: skip


def _form_of(group: Group, schedule: Rows) -> RowForm:
    form = row_form(group, schedule.across)
    if form is None:
        value = str(schedule.across).lower()
        raise OptionError(
            f"option 'across' of 'rows' cannot be {value} here",
            "lanes across the rows need contiguous results, and no ranges that data gives each row"
            if schedule.across
            else "results are contiguous across the rows alone",
        )
    return form


def before(
    group: Group, schedule: Rows, box: Box, machine: Machine
) -> Iterator[tuple[Launch, tuple[Tensor, ...]]]:
    """The launches for long rows that threads share; see `split_rows.py`."""
    form = _form_of(group, schedule)
    for phase in range(phases(form, schedule.version, box, machine)):
        own = RowPhase(schedule.lanes, schedule.unroll, phase, schedule.version)
        yield phase_launch(form, own, box, machine)


def _lower_phase(
    group: Group, schedule: RowPhase, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    form = row_form(group, across=False)
    assert form is not None
    return phase_launch(form, schedule, box, machine)[0]


_KNOBS = {
    "lanes": power_of_two(64).with_tries(4, 8, 16),
    "unroll": power_of_two(16).with_tries(1, 2, 4, 8),
    "across": FLAG,
    "version": VERSIONS,
}
TEMPLATE = Template("rows", Rows, match, lower, before=before, knobs=_KNOBS)
PHASES = Template("row_phase", RowPhase, lambda *_: None, _lower_phase)

"""The template of ordered steps; its modules are imported for the first group with steps."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.compiler.kernels.knobs import AXIS, between, power_of_two
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.loop_nest.nest_schedule import LoopNest
from anydim.compiler.kernels.template import Task, form_template

if TYPE_CHECKING:
    from anydim.compiler.kernels.loop_nest.nest_form import NestForm

_LOWERING = "anydim.compiler.kernels.loop_nest.nest_lowering"


def _form(task: Task) -> NestForm | None:
    if not task.group.steps:
        return None
    form: NestForm | None = import_module("anydim.compiler.kernels.loop_nest.nest_form").nest_form(
        task.group, task.box
    )
    return form


def _propose(form: NestForm, task: Task) -> LoopNest:
    propose: Callable[[NestForm, Task], LoopNest] = import_module(_LOWERING).propose
    return propose(form, task)


def _lower(form: NestForm, schedule: LoopNest, task: Task) -> Launch:
    lower: Callable[[NestForm, LoopNest, Task], Launch] = import_module(_LOWERING).lower
    return lower(form, schedule, task)


_KNOBS = {
    "lanes": power_of_two(64).with_tries(4, 8, 16),
    "unroll": power_of_two(16).with_tries(1, 2, 4),
    "parallel": AXIS,
    "block": between(0, 1 << 30),
}
TEMPLATE = form_template(
    "loop_nest", LoopNest, _form, _propose, _lower, takes_steps=True, knobs=_KNOBS
)

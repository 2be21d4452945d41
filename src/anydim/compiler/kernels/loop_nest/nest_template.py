"""The template of ordered steps; its modules are imported for the first group with steps."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anydim.compiler.kernels.knobs import AXIS, between, power_of_two
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.loop_nest.nest_schedule import Nest
from anydim.compiler.kernels.template import Task, form_template


def _form(task: Task) -> Any:
    group = task.group
    return _later("nest_form").nest_form(group, task.box) if group.steps else None


def _propose(form: Any, task: Task) -> Nest:
    made: Nest = _later("nest_lowering").propose(form, task)
    return made


def _lower(form: Any, schedule: Nest, task: Task) -> Launch:
    made: Launch = _later("nest_lowering").lower(form, schedule, task)
    return made


def _later(module: str) -> Any:
    return import_module(f"anydim.compiler.kernels.loop_nest.{module}")


_KNOBS = {
    "lanes": power_of_two(64).with_tries(4, 8, 16),
    "unroll": power_of_two(16).with_tries(1, 2, 4),
    "parallel": AXIS,
    "block": between(0, 1 << 30),
}
TEMPLATE = form_template("loop_nest", Nest, _form, _propose, _lower, knobs=_KNOBS)

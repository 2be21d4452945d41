"""A template: `y(i) = -x(i)`, one element after the other."""

from __future__ import annotations

from dataclasses import dataclass

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.context import SizeParameters
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.template import Task, Template, form_template
from anydim.lang.tree import Apply, Index, Read, Statement


@dataclass(frozen=True)
class Negation:
    """No options."""


def _form(task: Task) -> Statement | None:
    if len(task.group.statements) != 1 or len(task.group.inputs) != 1:
        return None
    (statement,) = task.group.statements
    if len(statement.axes) != 1 or statement.combine:
        return None
    read = Read(task.group.inputs[0].name, (Index(statement.axes[0].name),))
    return statement if statement.body == Apply("neg", (read,)) else None


def _lower(statement: Statement, schedule: Negation, task: Task) -> Launch:
    (given,) = task.group.inputs
    operands = Operands.of(task.group, (statement.body,), {given.name: "x", statement.target: "y"})
    at, extent = ir.Var(ir.INDEX, "i"), statement.axes[0].extent
    value = ir.operate("neg", ir.Load(ir.Type(given.type.dtype), "x", at))
    start, stop = ir.Var(ir.INDEX, "start"), ir.Var(ir.INDEX, "stop")
    body = (ir.For("i", start, stop, ir.constant(1), (ir.Store("y", at, value),)),)
    moved = 2 * given.type.dtype.bytes * extent
    return operands.launch(
        "negation", SizeParameters(), body, schedule, "a toy", parallel=extent, work=(extent, moved)
    )


def template() -> Template:
    """Registers the schedule: its name is then known in texts of options."""
    return form_template("negation", Negation, _form, lambda *_: Negation(), _lower)

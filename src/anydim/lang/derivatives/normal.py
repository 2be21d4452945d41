"""Steps in the form that the backward pass takes.

A step that multiplies the values of its target, or takes an extreme of them, becomes an assignment
that reads them: `y(i) max= x(i,k)` is `m(i) max=! x(i,k)` and `y(i) = max(y(i), m(i))`.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.lang.derivatives.algebra import call
from anydim.lang.derivatives.cotangents import indices_of
from anydim.lang.derivatives.step_adjoints import is_injective
from anydim.lang.resolve.scope import new_name
from anydim.lang.tree import OrderedStep, Read, Statement, TensorType, Write
from anydim.lang.tree.stepping import replace_writes


def normal_steps(
    steps: Iterable[OrderedStep], types: dict[str, TensorType], taken: set[str]
) -> tuple[OrderedStep, ...]:
    """The steps without combinations other than sums; adds the types of new tensors."""

    def change(step: Statement | Write) -> list[OrderedStep]:
        plain = isinstance(step, Statement) or step.fresh or step.combine in ("", "add")
        if isinstance(step, Statement) or plain or not is_injective(step):
            return [step]
        made: list[OrderedStep] = []
        value = step.body
        if step.reduced:
            shape = tuple(axis.extent for axis in step.axes)
            name = new_name(f"{step.target}_part", taken)
            types[name] = TensorType(types[step.target].dtype, shape)
            made.append(Statement(name, step.axes, step.body, step.combine, step.reduced))
            value = Read(name, indices_of(step.axes))
        old = Read(step.target, step.indices)
        made.append(Write(step.target, step.indices, step.axes, call(step.combine, old, value)))
        return made

    return replace_writes(steps, change)

"""Traversal and rewriting of ordered statements, through loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from anydim.lang.tree import Branch, Expr, Loop, OrderedStep, SizeTerm, Statement, Write
from anydim.lang.tree.affine import rewrite


def all_steps(steps: Iterable[OrderedStep]) -> Iterator[OrderedStep]:
    """Yield all steps and nested steps, outer before inner."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from all_steps(step.body)
        elif isinstance(step, Branch):
            yield from all_steps((*step.then, *step.otherwise))


def replace_writes(
    steps: Iterable[OrderedStep], change: Callable[[Statement | Write], Iterable[OrderedStep]]
) -> tuple[OrderedStep, ...]:
    """Replace each write by the steps that `change` returns for it, branches included."""
    made: list[OrderedStep] = []
    for step in steps:
        if isinstance(step, Branch):
            then, otherwise = (
                replace_writes(step.then, change),
                replace_writes(step.otherwise, change),
            )
            made.append(replace(step, then=then, otherwise=otherwise))
        elif isinstance(step, Loop):
            made.append(replace(step, body=replace_writes(step.body, change)))
        else:
            made += change(step)
    return tuple(made)


def with_expressions(
    steps: Iterable[OrderedStep], change: Callable[[Expr], Expr]
) -> tuple[OrderedStep, ...]:
    """Apply `change` to every expression of the steps."""
    return tuple(_change_step(step, change) for step in steps)


def _change_step(step: OrderedStep, change: Callable[[Expr], Expr]) -> OrderedStep:
    if isinstance(step, Branch):
        then, otherwise = (with_expressions(b, change) for b in (step.then, step.otherwise))
        return Branch(change(step.condition), then, otherwise)
    if isinstance(step, Loop):
        body = with_expressions(step.body, change)
        return replace(step, start=change(step.start), stop=change(step.stop), body=body)
    made = replace(step, body=change(step.body))
    if isinstance(made, Write):
        return replace(made, indices=tuple(map(change, made.indices)))
    return made


def expressions_of(steps: Iterable[OrderedStep]) -> Iterator[tuple[str, Expr]]:
    """Yield every expression of steps; written indices come with the tensor that they index."""
    for step in all_steps(steps):
        if isinstance(step, Loop):
            yield from (("", step.start), ("", step.stop))
        elif isinstance(step, Branch):
            yield "", step.condition
        else:
            yield "", step.body
            yield from ((step.target, p) for p in (step.indices if isinstance(step, Write) else ()))


def writes(steps: Iterable[OrderedStep]) -> Iterator[Statement | Write]:
    """Yield the writes of these steps, at any depth."""
    return (step for step in all_steps(steps) if isinstance(step, (Statement, Write)))


def written_tensors(steps: Iterable[OrderedStep]) -> frozenset[str]:
    """The tensors that these steps write."""
    return frozenset(step.target for step in writes(steps))


def variables_of(steps: Iterable[OrderedStep]) -> list[str]:
    """The variables of all loops, outer before inner."""
    return [step.variable for step in all_steps(steps) if isinstance(step, Loop)]


def with_body(step: Statement | Write, body: Expr) -> Statement | Write:
    """The step without its reduction, whose result is `body`."""
    if isinstance(step, Statement):
        return Statement(step.target, step.axes, body)
    combine = "" if step.fresh else step.combine
    return replace(step, body=body, combine=combine, reduced=(), fresh=False)


def sizes_of(expr: Expr) -> set[str]:
    """The symbols of sizes in an expression."""
    found: set[str] = set()

    def look(part: Expr) -> None:
        if isinstance(part, SizeTerm):
            found.update(part.size.symbols)

    rewrite(expr, look)
    return found

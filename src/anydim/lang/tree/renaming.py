"""Renaming of the tensors and loop variables of steps, and of the sizes of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from anydim.lang.tree import (
    Axis,
    Branch,
    Expr,
    Group,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Size

Assigning = TypeVar("Assigning", Statement, Write)


def rename_steps(
    steps: Sequence[OrderedStep],
    tensors: Mapping[str, str],
    sizes: Mapping[str, Size] | None = None,
) -> tuple[OrderedStep, ...]:
    """Rename tensors and sizes in steps; other names are unchanged.

    A loop whose variable is among `sizes` uses the new symbol as its variable.
    """
    given = sizes or {}

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in tensors:
            return replace(expr, tensor=tensors[expr.tensor])
        if isinstance(expr, SizeTerm) and not given.keys().isdisjoint(expr.size.symbols):
            return SizeTerm(expr.size.substitute(given))
        return None

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(axis.name, axis.extent.substitute(given)) for axis in old)

    def assigning(step: Assigning) -> Assigning:
        target = tensors.get(step.target, step.target)
        body = rewrite(step.body, change)
        own, reduced = axes(step.axes), axes(step.reduced)
        return replace(step, target=target, body=body, axes=own, reduced=reduced)

    def one(step: OrderedStep) -> OrderedStep:
        if isinstance(step, Statement):
            return assigning(step)
        if isinstance(step, Write):
            indices = tuple(rewrite(index, change) for index in step.indices)
            return replace(assigning(step), indices=indices)
        if isinstance(step, Branch):
            then, otherwise = (tuple(map(one, block)) for block in (step.then, step.otherwise))
            return Branch(rewrite(step.condition, change), then, otherwise)
        variable = given.get(step.variable)
        name = step.variable if variable is None else str(variable)
        start, stop = rewrite(step.start, change), rewrite(step.stop, change)
        return Loop(name, start, stop, step.step, tuple(map(one, step.body)))

    return tuple(map(one, steps))


def sizes_in(group: Group) -> Iterator[Size]:
    """The sizes that a group without steps depends on: of its tensors first, then of its loops."""
    for tensor in (*group.inputs, *group.outputs, *group.temporaries):
        yield from tensor.type.shape
    for statement in group.statements:
        for axis in (*statement.axes, *statement.reduced):
            yield axis.extent
        yield from _size_terms(statement.body)


def _size_terms(expr: Expr) -> list[Size]:
    found: list[Size] = []

    def look(part: Expr) -> None:
        if isinstance(part, SizeTerm):
            found.append(part.size)

    rewrite(expr, look)
    return found


def replace_sizes(group: Group, change: Callable[[Size], Size]) -> Group:
    """Replace every size of a group without steps and guards."""

    def tensors(old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(t.name, TensorType(t.type.dtype, tuple(map(change, t.type.shape)))) for t in old
        )

    def term(expr: Expr) -> Expr | None:
        return SizeTerm(change(expr.size)) if isinstance(expr, SizeTerm) else None

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(axis.name, change(axis.extent)) for axis in old)

    return Group(
        tensors(group.inputs),
        tensors(group.outputs),
        tuple(
            Statement(s.target, axes(s.axes), rewrite(s.body, term), s.combine, axes(s.reduced))
            for s in group.statements
        ),
        tensors(group.temporaries),
    )

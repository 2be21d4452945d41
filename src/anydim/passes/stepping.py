"""Steps with other names and sizes: rewriting of ordered statements, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from anydim.lang.affine import rewrite
from anydim.lang.tree import Axis, Branch, Expr, Loop, Read, SizeTerm, Statement, Step, Write
from anydim.sizes import Size


@dataclass(frozen=True)
class Renaming:
    """Other names for tensors, size expressions for symbols, in everything that a step holds."""

    tensors: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self._change)

    def _change(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in self.tensors:
            return replace(expr, tensor=self.tensors[expr.tensor])
        if isinstance(expr, SizeTerm) and self.sizes:
            return SizeTerm(expr.size.substitute(self.sizes))
        return None

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        if not self.sizes:
            return axes
        return tuple(replace(axis, extent=axis.extent.substitute(self.sizes)) for axis in axes)

    def step(self, step: Step) -> Step:
        if isinstance(step, Branch):
            then, otherwise = self.steps(step.then), self.steps(step.otherwise)
            return Branch(self.expr(step.condition), then, otherwise)
        if isinstance(step, Loop):
            start, stop = self.expr(step.start), self.expr(step.stop)
            return replace(step, start=start, stop=stop, body=self.steps(step.body))
        target = self.tensors.get(step.target, step.target)
        axes, reduced = self.axes(step.axes), self.axes(step.reduced)
        new = replace(step, target=target, axes=axes, reduced=reduced, body=self.expr(step.body))
        if isinstance(new, Write):
            return replace(new, place=tuple(map(self.expr, new.place)))
        return new

    def steps(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(map(self.step, steps))


def replaced(
    steps: Iterable[Step], change: Callable[[Statement | Write], Iterable[Step]]
) -> tuple[Step, ...]:
    """Steps with what `change` makes of each write in the place of it, branches included."""
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Branch):
            then, otherwise = replaced(step.then, change), replaced(step.otherwise, change)
            made.append(replace(step, then=then, otherwise=otherwise))
        elif isinstance(step, Loop):
            made.append(replace(step, body=replaced(step.body, change)))
        else:
            made += change(step)
    return tuple(made)


def writes(steps: Iterable[Step]) -> Iterator[Statement | Write]:
    """The writes of these steps, at any depth."""
    for step in steps:
        if isinstance(step, Loop):
            yield from writes(step.body)
        elif isinstance(step, Branch):
            yield from writes((*step.then, *step.otherwise))
        else:
            yield step


def with_body(step: Statement | Write, body: Expr) -> Statement | Write:
    """The step without its reduction, of which `body` is the result."""
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

"""What to write for a statement that reads other elements of what it writes: a loop.

A statement has no order: `y(i) = y(i - 1) + x(i)` reads what `y` held before any of it was
written. Who follows mathematics means a recurrence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.lang.surface.printer import print_assignment, print_term
from anydim.lang.surface.syntax import (
    Assignment,
    CallTerm,
    Definition,
    Dimension,
    Name,
    Number,
    Operation,
    Range,
    Spread,
    Term,
    changed,
    walk,
)


@dataclass(frozen=True)
class Recurrence:
    """A statement whose index `variable` counts what has an order; `back` where it runs down."""

    assignment: Assignment
    read: CallTerm
    variable: str
    back: bool

    @property
    def problem(self) -> str:
        """What is wrong."""
        target = self.assignment.target
        return (
            f"the statement reads other elements of '{target}', which it writes, and a statement "
            "has no order"
        )

    def advice(self, definition: Definition) -> str:
        """A loop that gives the order."""
        end = _end(self.assignment, self.variable, definition)
        span = f"{end} - 1:-1:-1" if self.back else f"0:{end}"
        where = tuple(
            clause for clause in self.assignment.where
            if not isinstance(clause, Range) or clause.index != self.variable
        )  # fmt: skip
        value = changed(self.assignment.value, self._guarded)
        inner = print_assignment(replace(self.assignment, value=value, where=where))
        for term in walk(value):
            if isinstance(term, CallTerm) and term.name == self.read.name and term is not value:
                text = print_term(term)
                inner = inner.replace(f"({text})", text).replace(text, f"({text})")
        return f"where order matters, write a loop: for {self.variable} in {span} {{ {inner} }}"

    def _guarded(self, term: Term) -> Term:
        """What it reads of itself is 0 where there is nothing yet."""
        if not isinstance(term, CallTerm) or term.name != self.read.name or term.default:
            return term
        return replace(term, default=Number(0))


def recurrence(assignment: Assignment, loops: Collection[str] = ()) -> Recurrence | None:
    """The recurrence that a statement seems to mean; None for one that has no index left to order.

    `loops` are the variables of the loops around it, which have an order.
    """
    for term in walk(assignment.value):
        own = isinstance(term, CallTerm) and term.name == assignment.target
        if not isinstance(term, CallTerm) or not own:
            continue
        for left, right in zip(assignment.indices, term.arguments):
            names = [t.name for t in walk(left) if isinstance(t, Name) and t.name not in loops]
            if right != left and names and not any(isinstance(t, CallTerm) for t in walk(left)):
                back = isinstance(left, Name) and _is_later(right)
                return Recurrence(assignment, term, names[0], back)
    return None


def _is_later(index: Term) -> bool:
    """Whether an index is a name and something more."""
    return isinstance(index, Operation) and index.function == "add"


def _end(assignment: Assignment, variable: str, definition: Definition) -> str:
    """The size of what an index counts, as a text."""
    for clause in assignment.where:
        if isinstance(clause, Range) and clause.index == variable:
            return _in_span(clause.high)
    shapes = {parameter.name: parameter.shape for parameter in definition.parameters}
    for term in walk(assignment.value):
        if not isinstance(term, CallTerm) or term.name not in shapes:
            continue
        for axis, (index, size) in enumerate(zip(term.arguments, shapes[term.name])):
            if index == Name(variable) and not isinstance(size, Spread):
                return _in_span(size)
            if isinstance(index, Spread):
                break
            if index == Name(variable):
                return print_term(Dimension(term.name, axis))
    return "..."


def _in_span(size: Term) -> str:
    text = print_term(size)
    return text if isinstance(size, (Name, Number, Dimension)) else f"({text})"

"""Advice for a statement that reads other elements of its own target: a loop.

A statement has no order: `y(i) = y(i - 1) + x(i)` reads the values of `y` before the statement.
Its author probably means a recurrence. In a loop that counts up, `y(t + 1)` is written by a later
iteration: then the loop has to count down.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.lang.surface.printer import print_assignment, print_term
from anydim.lang.surface.syntax import (
    Assignment,
    CallTerm,
    Definition,
    Dimension,
    Item,
    LoopBlock,
    Name,
    Number,
    Operation,
    Range,
    Spread,
    Term,
    rewrite_term,
    walk,
)


@dataclass(frozen=True)
class Recurrence:
    """A statement whose index `variable` needs an order; `back` if it counts down."""

    assignment: Assignment
    read: CallTerm
    variable: str
    back: bool

    @property
    def problem(self) -> str:
        """The problem, for the error."""
        target = self.assignment.target
        return (
            f"the statement reads other elements of its target '{target}', and a statement "
            "has no order"
        )

    def advice(self, definition: Definition) -> str:
        """A loop that provides the order."""
        end = _end(self.assignment, self.variable, definition)
        span = f"{end} - 1:-1:-1" if self.back else f"0:{end}"
        where = tuple(
            clause for clause in self.assignment.where
            if not isinstance(clause, Range) or clause.index != self.variable
        )  # fmt: skip
        value = rewrite_term(self.assignment.value, self._guard_reads)
        inner = print_assignment(replace(self.assignment, value=value, where=where))
        for term in walk(value):
            if isinstance(term, CallTerm) and term.name == self.read.name and term is not value:
                text = print_term(term)
                inner = inner.replace(f"({text})", text).replace(text, f"({text})")
        return f"where order matters, write a loop: for {self.variable} in {span} {{ {inner} }}"

    def _guard_reads(self, term: Term) -> Term:
        """Make reads of the target default to 0 where it is not written yet."""
        if not isinstance(term, CallTerm) or term.name != self.read.name or term.default:
            return term
        return replace(term, default=Number(0))


def recurrence(assignment: Assignment, loops: Collection[str] = ()) -> Recurrence | None:
    """The recurrence that a statement seems to mean; None when it has no index to order.

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


def reversed_loop(around: Sequence[Item], tensor: str) -> str:
    """The loop that counts the other way, if the last of some nested items reads what a later
    iteration of a loop around it writes; empty if none is evident."""
    loops = [item for item in around if isinstance(item, LoopBlock)]
    reads = [
        term for item in around[-1:] if isinstance(item, Assignment) for term in walk(item.value)
        if isinstance(term, CallTerm) and term.name == tensor
    ]  # fmt: skip
    for loop in reversed(loops):
        step = _number(loop.step)
        later = "add" if step == 1 else "sub"
        moved = any(_is_shifted(i, loop.variable, later) for read in reads for i in read.arguments)
        if moved and abs(step) == 1:
            first, last = _shifted_end(loop.stop, -step), _shifted_end(loop.start, -step)
            return f"for {loop.variable} in {first}:{last}{':-1' if step > 0 else ''}"
    return ""


def _number(term: Term) -> int:
    """Parse an integer term, 0 for others."""
    if isinstance(term, Operation) and term.function == "neg":
        return -_number(term.arguments[0])
    return term.value if isinstance(term, Number) and type(term.value) is int else 0


def _is_shifted(index: Term, variable: str, function: str) -> bool:
    """Whether an index is the variable plus (or minus) a positive number."""
    if not isinstance(index, Operation) or index.function != function:
        return False
    return index.arguments[0] == Name(variable) and _number(index.arguments[1]) > 0


def _shifted_end(end: Term, by: int) -> str:
    """Text of an end of a loop, shifted by an offset."""
    if isinstance(end, Operation) and end.function in ("add", "sub"):
        number = _number(end.arguments[1])
        if number:
            return _shifted_end(
                end.arguments[0], by + (number if end.function == "add" else -number)
            )
    if _number(end) or end == Number(0):
        return str(_number(end) + by)
    return f"{_in_span(end)} {'+' if by > 0 else '-'} {abs(by)}" if by else _in_span(end)


def _is_later(index: Term) -> bool:
    """Whether an index is a name plus something."""
    return isinstance(index, Operation) and index.function == "add"


def _end(assignment: Assignment, variable: str, definition: Definition) -> str:
    """Text of the size of the dimension that an index counts."""
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

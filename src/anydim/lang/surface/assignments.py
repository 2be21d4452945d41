"""Builds assignments from their parts, with the names that `where` defines substituted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anydim.lang.surface.scanner import Word
from anydim.lang.surface.syntax import (
    Assignment,
    CallTerm,
    Exists,
    Given,
    Invoke,
    Name,
    Problem,
    Range,
    Term,
    rewrite_term,
    walk,
)
from anydim.lang.surface.terms import check_depth, check_not_reserved, combination

LARGEST = 4000  # terms of a statement, with the named terms of its `where`


def assign(
    target: Word, indices: tuple[Term, ...], operator: Word, value: Term,
    clauses: Sequence[Range | Exists | Given],
) -> Assignment:  # fmt: skip
    """`target(indices) operator value where clauses`; raises Problem for an invalid one."""
    given = [clause for clause in clauses if isinstance(clause, Given)]
    ranges = [clause for clause in clauses if not isinstance(clause, Given)]
    if given:
        indices, value, ranges = _substitute(given, indices, value, clauses)
    combine, initial = combination(operator)
    if initial and not combine:
        raise Problem(operator.position, "'=!' is not an assignment", "write '=' or '+=!'")
    ends: list[Term] = []
    for clause in ranges:
        ends += (clause.low, clause.high) if isinstance(clause, Range) else clause.indices
    check_depth(value, *indices, *ends)
    names = tuple(Name(clause.name, clause.position) for clause in given)
    return Assignment(
        str(target), indices, combine, initial, value, tuple(ranges), target.position, names
    )


def _substitute(
    given: Sequence[Given], indices: tuple[Term, ...], value: Term,
    clauses: Sequence[Range | Exists | Given],
) -> tuple[tuple[Term, ...], Term, list[Range | Exists]]:  # fmt: skip
    """Replace the names that a statement's `where` defines by their terms."""
    meant: dict[str, Term] = {}
    used: set[str] = set()

    def inside(term: Term) -> Term:
        names = [t.name for t in walk(term) if isinstance(t, Name)]
        used.update(names)
        sizes = {name: len(walk(named)) for name, named in meant.items()}
        if sum(sizes.get(name, 1) for name in names) > LARGEST:
            raise Problem(term.position, "the expression is too large", "give parts of it names")
        return rewrite_term(term, lambda t: meant.get(t.name, t) if isinstance(t, Name) else t)

    for clause in given:
        if clause.name in meant:
            raise Problem(clause.position, f"'{clause.name}' is defined twice")
        if clause.name in used:
            problem = f"'{clause.name}' is used before it is defined"
            raise Problem(clause.position, problem, "define names before their use")
        named = inside(clause.value)
        check_depth(named)
        meant[clause.name] = named
    made = tuple(map(inside, indices)), inside(value)
    ranges = [_clause(each, inside) for each in clauses if not isinstance(each, Given)]
    for clause in given:
        if clause.name not in used:
            problem = f"'{clause.name}' is not used elsewhere in the statement"
            raise Problem(clause.position, problem, f"remove '{clause.name}' from the 'where'")
    return (*made, ranges)


def _clause(clause: Range | Exists, change: Callable[[Term], Term]) -> Range | Exists:
    if isinstance(clause, Range):
        return replace(clause, low=change(clause.low), high=change(clause.high))
    return replace(clause, indices=tuple(map(change, clause.indices)))


def define_term(name: Word, operator: Word, value: Term) -> Given:
    """`name = value` of a `where`; raises Problem for another operator or a reserved word."""
    if operator != "=":
        raise Problem(operator.position, f"a name is defined by '=', not '{operator}'")
    check_not_reserved(name)
    return Given(str(name), value, name.position)


def assign_several(
    targets: Sequence[tuple[Word, tuple[Term, ...]]], operator: Word, value: Term
) -> Invoke:
    """`C, D = g(A, B)`, or `C(b), D(b) = g(A(b), B)`; raises Problem for an invalid one."""
    if operator != "=":
        problem = f"results of a call are assigned by '=', not '{operator}'"
        raise Problem(operator.position, problem)
    if not isinstance(value, CallTerm):
        raise Problem(value.position, "several tensors are assigned by a call: C, D = g(A, B)")
    check_depth(value)
    position, rows = targets[0][0].position, targets[0][1]
    same = all(indices == rows for _, indices in targets)
    if not same or len(rows) > 1 or not all(isinstance(each, Name) for each in rows):
        problem = "results of a call have no indices, or all that of its row"
        raise Problem(position, problem, "write C, D = g(A, B), or C(b), D(b) = g(A(b), B)")
    row = rows[0].name if rows and isinstance(rows[0], Name) else ""
    return Invoke(tuple(str(name) for name, _ in targets), value, position, rows=row)

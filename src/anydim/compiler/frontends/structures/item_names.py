"""The names that an item of a definition writes and reads."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    CallTerm,
    Exists,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Term,
    WhileBlock,
    targets,
    walk,
)


def names_of(item: Item) -> Iterator[str]:
    """Yield the names of tensors, sizes and functions in an item, without the items inside it."""
    yield from targets((item,)) if isinstance(item, (Assignment, Invoke)) else ()
    yield from reads_of(item)


def reads_of(item: Item) -> Iterator[str]:
    """Yield the names in the terms of an item, without its targets and the items inside it."""
    terms: list[Term] = []
    if isinstance(item, Assignment):
        terms = [*item.indices, item.value]
        for clause in item.where:
            if isinstance(clause, Exists):
                yield clause.tensor
            terms += clause.indices if isinstance(clause, Exists) else (clause.low, clause.high)
    elif isinstance(item, Invoke):
        terms = [*item.call.arguments, *(each.value for each in item.call.settings)]
    elif isinstance(item, LoopBlock):
        terms = [item.start, item.stop, item.step]
    elif isinstance(item, (BranchBlock, WhileBlock)):
        terms = [item.condition]
    for term in terms:
        for each in walk(term):
            if isinstance(each, (Name, CallTerm)):
                yield each.name
            else:
                yield getattr(each, "tensor", "")

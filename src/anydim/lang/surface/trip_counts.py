"""Whether values in tensors determine how often the loops of a definition run."""

from __future__ import annotations

from anydim.lang.surface.syntax import (
    CallTerm,
    Definition,
    Flat,
    LoopBlock,
    Range,
    Term,
    items,
    walk,
)


def counts_trips(definition: Definition) -> bool:
    """Whether a range or a loop of a definition, or of its callees, ends at a value of a tensor."""
    names = {parameter.name for parameter in definition.parameters}
    for item in items(definition.statements):
        ends: list[Term] = []
        if isinstance(item, LoopBlock):
            ends = [item.start, item.stop]
        for clause in getattr(item, "where", ()):
            ends += [clause.low, clause.high] if isinstance(clause, Range) else []
        if any(_reads(part, names) for end in ends for part in walk(end)):
            return True
    return any(map(counts_trips, definition.callees))


def _reads(term: Term, names: set[str]) -> bool:
    return isinstance(term, (CallTerm, Flat)) or getattr(term, "name", "") in names

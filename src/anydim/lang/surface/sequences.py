"""Definitions that are compiled to several nodes, by their text."""

from __future__ import annotations

from anydim.lang.surface.operator_names import DATA_SIZED, LIBRARY
from anydim.lang.surface.syntax import Definition, Invoke, Item, items


def is_sequence(definition: Definition) -> bool:
    """Whether a definition is compiled to several nodes."""
    if definition.types:
        return False
    if definition.has_states:
        return True
    callees = {each.name: each for each in definition.callees}
    for item in items(definition.statements):
        if not isinstance(item, Invoke) or item.type:
            continue
        callee = callees.get(item.call.name)
        if item.rows or (callee is None and is_algorithm(item)):
            return True
        if callee is not None and is_sequence(callee):
            return True
    return False


def is_algorithm(item: Item) -> bool:
    """Whether an item calls an operator that has no comprehensions."""
    if not isinstance(item, Invoke) or item.type:
        return False
    if item.call.name in DATA_SIZED:
        return True
    record = LIBRARY.get(item.call.name)
    return record is not None and record.routine is not None

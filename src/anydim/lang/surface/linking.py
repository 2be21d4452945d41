"""Links the calls between the definitions of a text: each definition gets its callees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.lang.surface.check import check
from anydim.lang.surface.operator_names import LIBRARY
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    items,
    targets,
)

DEEPEST_CALLS = 32


def link(definitions: Sequence[Definition]) -> tuple[Definition, ...]:
    """Check the definitions, separate calls from reads and functions, and link the callees.

    Raises LanguageError for an invalid definition, or one that calls itself.
    """
    heads = {definition.name: definition for definition in definitions}
    called = {name: _with_calls(definition, set(heads)) for name, definition in heads.items()}
    for definition in called.values():
        check(definition, heads)
    done: dict[str, Definition] = {}
    for name in called:
        _linked(name, called, done, ())
    return tuple(done[name] for name in called)


def _with_calls(definition: Definition, names: set[str]) -> Definition:
    """Convert assignments `y = g(A)` to calls where g is a definition or an operator of the
    library."""
    tensors = {*targets(definition.statements), *(p.name for p in definition.parameters)}
    callable_names = (names | LIBRARY.keys()) - tensors

    def change(item: Item) -> Item:
        if isinstance(item, LoopBlock):
            return replace(item, body=tuple(map(change, item.body)))
        if isinstance(item, BranchBlock):
            then, otherwise = map(change, item.then), map(change, item.otherwise)
            return replace(item, then=tuple(then), otherwise=tuple(otherwise))
        if not isinstance(item, Assignment) or item.indices or item.combine or item.where:
            return item
        if isinstance(item.value, CallTerm) and item.value.name in callable_names:
            return Invoke((item.target,), item.value, item.position)
        return item

    return replace(definition, statements=tuple(map(change, definition.statements)))


def _linked(
    name: str, called: dict[str, Definition], done: dict[str, Definition], within: tuple[str, ...]
) -> Definition:
    if name in done:
        return done[name]
    definition = called[name]
    callees: dict[str, Definition] = {}
    heights: dict[str, int] = {}
    for item in items(definition.statements):
        if not isinstance(item, Invoke):
            continue
        callee = item.call.name
        if callee not in called:
            continue  # an operator of the library
        if callee in (*within, name):
            cycle = " -> ".join((*within, name, callee)[(*within, name).index(callee) :])
            raise definition.error(
                item.call.position, f"'{callee}' calls itself: {cycle}", "write a loop instead"
            )
        if len(within) < DEEPEST_CALLS:
            callees[callee] = _linked(callee, called, done, (*within, name))
        if len(within) >= DEEPEST_CALLS or _height(callees[callee], heights) >= DEEPEST_CALLS:
            problem = f"calls nested more than {DEEPEST_CALLS} deep"
            raise definition.error(item.call.position, problem)
    done[name] = replace(definition, callees=tuple(callees.values()))
    return done[name]


def _height(definition: Definition, known: dict[str, int]) -> int:
    """Nesting depth of the calls of a definition."""
    if definition.name not in known:
        inner = (_height(callee, known) for callee in definition.callees)
        known[definition.name] = 1 + max(inner, default=0)
    return known[definition.name]

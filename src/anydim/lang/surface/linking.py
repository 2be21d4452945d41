"""Links the definitions of a text: each gets its callees, structure types and resolved patterns.

Definitions that call each other with parts of structures are a family; other cycles are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.components import components
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.check import check
from anydim.lang.surface.names import first_structure
from anydim.lang.surface.nested_calls import Callables, without_nested
from anydim.lang.surface.operator_names import DATA_SIZED, LIBRARY
from anydim.lang.surface.patterns import Resolver, pattern_names
from anydim.lang.surface.printer import print_type_name
from anydim.lang.surface.structure_types import Types, alone, sizes_of
from anydim.lang.surface.structure_values import Values, instances_of, structure_values
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Parameter,
    WhileBlock,
    items,
    targets,
)
from anydim.lang.tree.composed import COMPOSED

DEEPEST_CALLS = 32
DEPTH = "depth"  # the attribute that bounds the open calls of a recursion


def link(definitions: Sequence[Definition], types: Types) -> tuple[Definition, ...]:
    """Check the definitions, separate calls from reads and functions, and link the callees.

    Raises LanguageError for an invalid definition, or one that calls itself, unless the first
    structure of each such call is a part of the caller's.
    """
    heads = {definition.name: definition for definition in definitions}
    called = {name: _resolve_patterns(definition, types) for name, definition in heads.items()}
    structures = {name for name, each in heads.items() if first_structure(each, types)}
    called = {
        name: _with_calls(each, set(heads), structures, types) for name, each in called.items()
    }
    families = _families(called, types)
    values = structure_values(called, types)
    for name, definition in called.items():
        family = frozenset(families.get(name, ()))
        check(definition, heads, types, family, values[name].kinds)
    called = {
        name: _add_structure_types(each, types, values[name]) for name, each in called.items()
    }
    done: dict[str, Definition] = {}
    for name in called:
        _link_definition(name, called, done, (), families)
    return tuple(done[name] for name in called)


def _with_calls(
    definition: Definition, names: set[str], structures: set[str], types: Types
) -> Definition:
    """Convert assignments `y = g(A)` to calls where g is a definition or an operator of the
    library, or to new nodes where g is a constructor; `structures` are definitions over them."""
    own = {*targets(definition.statements), *pattern_names(definition.statements)}
    own.update(each.name for each in definition.parameters)
    own.update(each.name for each in definition.attributes)
    own.update(size for each in definition.parameters for size in sizes_of(each))
    callable_names = (names | {*LIBRARY, *DATA_SIZED}) - own
    constructors = _constructors(definition, types, names)
    made = constructors.keys() - own
    callables = Callables(callable_names | made, names - own, structures - own, made, own)
    definition = without_nested(definition, callables)

    def change(item: Item) -> Item:
        if isinstance(item, (LoopBlock, WhileBlock)):
            return replace(item, body=tuple(map(change, item.body)))
        if isinstance(item, BranchBlock):
            then, otherwise = map(change, item.then), map(change, item.otherwise)
            return replace(item, then=tuple(then), otherwise=tuple(otherwise))
        if isinstance(item, MatchBlock):
            cases = (replace(case, body=tuple(map(change, case.body))) for case in item.cases)
            return replace(item, cases=tuple(cases))
        if isinstance(item, Invoke) and item.call.name in constructors.keys() - own:
            return replace(item, type=constructors[item.call.name])
        if not isinstance(item, Assignment) or item.combine or item.where:
            return item
        value = item.value
        if item.indices:
            return _row_call(item, names - own)
        if isinstance(value, (Name, CallTerm)) and value.name in constructors.keys() - own:
            if isinstance(value, Name):
                value = CallTerm(value.name, (), position=value.position)
            return Invoke((item.target,), value, item.position, constructors[value.name])
        if isinstance(value, CallTerm) and value.name in callable_names:
            return Invoke((item.target,), value, item.position)
        return item

    return replace(definition, statements=tuple(map(change, definition.statements)))


def _row_call(item: Assignment, names: set[str]) -> Item:
    """Convert `y(b) = g(x(b))` to a call for each row where g is a definition."""
    (index, *more), value = item.indices, item.value
    if more or not isinstance(index, Name) or not isinstance(value, CallTerm):
        return item
    if value.name not in names:
        return item
    return Invoke((item.target,), value, item.position, rows=index.name)


def _constructors(definition: Definition, types: Types, names: set[str]) -> dict[str, str]:
    """A type of each constructor; only those of the definition's types hide other names."""
    found: dict[str, str] = {}
    for kind in instances_of(definition, types).values():
        found.update({each.name: kind.type for each in types.constructors(kind)})
    for declared in types.declared.values():
        for each in declared.constructors:
            if each.name not in (*LIBRARY, *FUNCTIONS, *COMPOSED):
                found.setdefault(each.name, declared.name)
    return {name: kind for name, kind in found.items() if name not in names}


def _resolve_patterns(definition: Definition, types: Types) -> Definition:
    """A definition with resolved patterns."""
    scope = {each.name: each for each in definition.parameters if types.is_structure(each)}
    resolver = Resolver(definition, types)
    return replace(definition, statements=resolver.block(definition.statements, scope))


def _add_structure_types(definition: Definition, types: Types, values: Values) -> Definition:
    """A definition with the structure types of its parameters, results and nodes, by their
    canonical names."""
    return replace(
        definition,
        parameters=tuple(map(types.link_parameter, definition.parameters)),
        types=types.reachable_types(definition.parameters),
        statements=values.add_types(definition.statements),
        result_types=tuple(map(_type_name, values.results)) if any(values.results) else (),
    )


def _type_name(kind: Parameter | None) -> str:
    return "" if kind is None else print_type_name(alone(kind))


def _families(called: dict[str, Definition], types: Types) -> dict[str, tuple[str, ...]]:
    """The definitions that call each other, all with structures or with a depth, by name."""
    calls = {
        name: {item.call.name for item in items(definition.statements) if isinstance(item, Invoke)}
        & called.keys()
        for name, definition in called.items()
    }
    found: dict[str, tuple[str, ...]] = {}
    for members in components(calls):
        recursive = len(members) > 1 or members[0] in calls[members[0]]
        structures = [bool(first_structure(called[name], types)) for name in members]
        bounded = all(any(a.name == DEPTH for a in called[name].attributes) for name in members)
        if recursive and (all(structures) or (bounded and not any(structures))):
            found.update(dict.fromkeys(members, tuple(members)))
    return found


def _link_definition(
    name: str, called: dict[str, Definition], done: dict[str, Definition], within: tuple[str, ...],
    families: dict[str, tuple[str, ...]],
) -> Definition:  # fmt: skip
    if name in done:
        return done[name]
    members = families.get(name, (name,))
    family = tuple(
        _with_callees(called[member], called, done, (*within, member), families)
        for member in members
    )
    for each in family:
        done[each.name] = replace(each, family=family if name in families else ())
    return done[name]


def _with_callees(
    definition: Definition, called: dict[str, Definition], done: dict[str, Definition],
    within: tuple[str, ...], families: dict[str, tuple[str, ...]],
) -> Definition:  # fmt: skip
    callees: dict[str, Definition] = {}
    heights: dict[str, int] = {}
    for item in items(definition.statements):
        if not isinstance(item, Invoke):
            continue
        callee = item.call.name
        if callee not in called or callee in families.get(definition.name, ()):
            continue  # an operator of the library, or recursion on a structure
        if callee in within:
            cycle = " -> ".join((*within, callee)[within.index(callee) :])
            raise definition.error(
                item.call.position,
                f"'{callee}' calls itself: {cycle}",
                "write a loop instead, or bound the number of open calls: ; size depth = 100",
            )
        if len(within) <= DEEPEST_CALLS:
            callees[callee] = _link_definition(callee, called, done, within, families)
        if len(within) > DEEPEST_CALLS or _height(callees[callee], heights) >= DEEPEST_CALLS:
            problem = f"calls nested more than {DEEPEST_CALLS} deep"
            raise definition.error(item.call.position, problem)
    return replace(definition, callees=tuple(callees.values()))


def _height(definition: Definition, known: dict[str, int]) -> int:
    """Nesting depth of the calls of a definition."""
    if definition.name not in known:
        inner = (_height(callee, known) for callee in definition.callees)
        known[definition.name] = 1 + max(inner, default=0)
    return known[definition.name]

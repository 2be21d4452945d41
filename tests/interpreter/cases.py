"""Statements of a definition in one case of each match, and the values that its patterns name.

A structure is a tuple: the name of its constructor, then the values of its fields. A field of any
number of structures is a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    CallTerm,
    Case,
    Definition,
    Invoke,
    Item,
    MatchBlock,
    Name,
    Parameter,
    Pattern,
    StructureType,
    Term,
    targets,
)
from tests.interpreter.kinds import NotCovered

Types = Mapping[str, StructureType]


@dataclass(frozen=True)
class Site:
    """A statement that makes a node: the name of the node's number, and the names of its fields."""

    target: str
    constructor: str
    fields: tuple[Parameter, ...]
    arguments: tuple[str, ...]


@dataclass
class Path:
    """The statements of a definition in some cases.

    `fields` are the tensors and structures that patterns name, `values` their values when known,
    and `counts` the sizes that are numbers of structures. Structures have numbers: `sites` are the
    statements that make them.
    """

    items: tuple[Item, ...]
    fields: dict[str, Parameter] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()

    def numbered(self, types: Types) -> list[str]:
        """The names of numbers of structures that statements may read."""
        single = (n for n, part in self.fields.items() if part.type in types and not part.shape)
        return [*single, *(site.target for site in self.sites)]


def types_of(definition: Definition) -> Types:
    """The structure types of a definition by name."""
    return {each.name: each for each in definition.types}


def member(definition: Definition, name: str) -> Definition | None:
    """A definition of the text that this one calls; None for operators of the library."""
    for each in definition.family:
        if each.name == name:
            return replace(each, family=definition.family)
    return next((each for each in definition.callees if each.name == name), None)


def structure_calls(path: Path, definition: Definition) -> Iterator[tuple[int, Invoke, Definition]]:
    """Yield the calls with structures: their number among the items, and the definition called."""
    for number, item in enumerate(path.items):
        callee = member(definition, item.call.name) if isinstance(item, Invoke) else None
        if isinstance(item, Invoke) and callee is not None and callee.types:
            yield number, item, callee


def paths(definition: Definition) -> Iterator[Path]:
    """Yield the statements of a definition for each choice of cases, with one node per list."""
    types = types_of(definition)
    scope = {each.name: each for each in definition.parameters if each.type in types}
    for path in _paths(definition.statements, scope, types):
        path.fields = {**scope, **path.fields}
        _number_nodes(path, definition)
        yield path


def _paths(block: tuple[Item, ...], scope: Mapping[str, Parameter], types: Types) -> Iterator[Path]:
    before, match, after = _split(block)
    if match is None:
        yield Path(block)
        return
    for case in match.cases:
        own = Path(())
        for name, pattern in zip(match.structures, case.patterns):
            _name_fields(pattern, scope[name.name], types, own)
        for inner in _paths(case.body, {**scope, **own.fields}, types):
            items = (*before, *inner.items, *after)
            yield Path(items, {**own.fields, **inner.fields}, {}, {**own.counts, **inner.counts})


def _split(
    block: tuple[Item, ...],
) -> tuple[tuple[Item, ...], MatchBlock | None, tuple[Item, ...]]:
    for number, item in enumerate(block):
        if isinstance(item, MatchBlock):
            return block[:number], item, block[number + 1 :]
    return block, None, ()


def _name_fields(pattern: Pattern, kind: Parameter, types: Types, path: Path) -> None:
    if pattern.arguments is None:
        path.fields[pattern.name] = replace(kind, name=pattern.name)
        return
    fields = types[kind.type].constructor(pattern.name).fields
    for inner, part in zip(pattern.arguments, fields):
        if part.type in types:
            path.counts.update((term.name, 1) for term in part.shape if isinstance(term, Name))
        _name_fields(inner, part, types, path)


def _number_nodes(path: Path, definition: Definition) -> None:
    """Replace the statements that make nodes by copies of the numbers of these nodes."""
    own = {*targets(path.items), *path.fields, *(each.name for each in definition.parameters)}
    types, sites = types_of(definition), list[Site]()

    def changed(block: tuple[Item, ...]) -> tuple[Item, ...]:
        made: list[Item] = []
        for item in block:
            if isinstance(item, BranchBlock):
                item = replace(item, then=changed(item.then), otherwise=changed(item.otherwise))
            if not isinstance(item, Invoke) or not item.type:
                made.append(item)
                continue
            node, names = f"{item.targets[0]}@node{len(sites)}", list[str]()
            for number, term in enumerate(item.call.arguments):
                if isinstance(term, Name) and term.name in own:
                    names.append(term.name)
                    continue
                names.append(f"{node}.{number}")
                made.append(Assignment(names[-1], (), "", False, term, position=term.position))
            parts = types[item.type].constructor(item.call.name).fields
            sites.append(Site(node, item.call.name, parts, tuple(names)))
            made.append(replace(copies(item.targets[0], node, 0), position=item.position))
        return tuple(made)

    path.items = changed(path.items)
    path.sites = tuple(sites)


def shared_names(block: tuple[Item, ...]) -> set[str]:
    """The tensors that statements beside a match assign or read: one in all its cases."""
    before, match, after = _split(block)
    if match is None:
        return set()
    found = {name for item in (*before, *after) for name in _named(item)}
    return found.union(*(shared_names(case.body) for case in match.cases))


def _named(item: Any) -> Iterator[str]:
    """Yield all names in an item."""
    waiting = [item]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, tuple):
            waiting += each
        elif hasattr(each, "__dict__"):
            waiting += vars(each).values()


# ---- values ------------------------------------------------------------------------------------


def selected(definition: Definition, structures: Mapping[str, Any]) -> Path:
    """The statements of a definition for its structures, with the values of their fields."""
    types = types_of(definition)
    found = Path((), {each.name: each for each in definition.parameters if each.type in types})
    found.values.update(structures)
    before: list[Item] = []
    after: list[Item] = []
    block = definition.statements
    while True:
        first, match, rest = _split(block)
        before += first
        if match is None:
            found.items = (*before, *after)
            _number_nodes(found, definition)
            return found
        after = [*rest, *after]
        block = _chosen(match, found, types).body


def _chosen(match: MatchBlock, path: Path, types: Types) -> Case:
    """The first case that fits; its names go into the path."""
    for case in match.cases:
        own = Path(())
        if all(
            _fits(pattern, path.fields[name.name], path.values[name.name], types, own)
            for name, pattern in zip(match.structures, case.patterns)
        ):
            path.fields.update(own.fields)
            path.values.update(own.values)
            path.counts.update(own.counts)
            return case
    raise NotCovered("a match without a case that fits")


def _fits(pattern: Pattern, kind: Parameter, value: Any, types: Types, path: Path) -> bool:
    if pattern.arguments is None:
        path.fields[pattern.name] = replace(kind, name=pattern.name)
        path.values[pattern.name] = value
        return True
    if value[0] != pattern.name:
        return False
    fields = types[kind.type].constructor(pattern.name).fields
    for part, inner in zip(fields, value[1:]):
        if part.type in types and part.shape:
            _count(part, inner, path)
    return all(
        _fits(inner, part, each, types, path)
        for inner, part, each in zip(pattern.arguments, fields, value[1:])
    )


def _count(part: Parameter, value: Sequence[Any], path: Path) -> None:
    (size,) = (term.name for term in part.shape if isinstance(term, Name))
    if path.counts.setdefault(size, len(value)) != len(value):
        raise InputError(f"'{part.name}' has {len(value)} structures, expected {path.counts[size]}")


def nodes(value: Any, kind: str, types: Types) -> Iterator[tuple[Any, tuple[Parameter, ...]]]:
    """Yield every structure in a structure, with the fields of its constructor.

    Raises InputError for a value that is no structure of the type.
    """
    waiting = [(value, kind)]
    while waiting:
        value, kind = waiting.pop()
        known = {each.name: each.fields for each in types[kind].constructors}
        if not isinstance(value, tuple) or not value or value[0] not in known:
            raise InputError(f"{value!r:.60} is no {kind}")
        fields = known[value[0]]
        if len(fields) != len(value) - 1:
            raise InputError(f"'{value[0]}' has {len(value) - 1} fields, expected {len(fields)}")
        yield value, fields
        for part, inner in zip(fields, value[1:]):
            if part.type in types:
                waiting += [(each, part.type) for each in (inner if part.shape else [inner])]


def copies(target: str, source: str, rank: int, row: bool = False) -> Assignment:
    """The statement `target(i,j) = source(i,j)`; with `row`, `target(@row,i,j)` instead."""
    indices = tuple(Name(f"@{axis}") for axis in range(rank))
    value: Term = CallTerm(source, indices) if indices else Name(source)
    return Assignment(target, (Name("@row"), *indices) if row else indices, "", False, value)

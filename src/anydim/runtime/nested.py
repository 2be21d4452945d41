"""Nested values of structure types as arrays, and back.

A node is a tuple of the constructor's name and its fields, `("node", left, right)`; a constructor
without fields may be its name alone. A field with any number of structures is a list. Values are
read level by level, with a cost per level and none per node in the interpreter. A Python object
that occurs several times is one node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Any, NoReturn

import numpy

from anydim.base.errors import InputError
from anydim.base.text import article, count_of
from anydim.base.user_values import short_repr
from anydim.runtime.forest import Arrays, Fail, Key, Schema, references
from anydim.runtime.lists import ConstructorPort, FieldPort

Waiting = defaultdict[str, list[Any]]  # by type
_FIRST = itemgetter(0)
_FEW = 16  # nodes that are read faster one by one


# ---- nested values to arrays ---------------------------------------------------------------------


def arrays_of(schema: Schema, given: Any) -> tuple[Arrays, bool]:
    """The arrays of nested values, and whether it is a single structure.

    A tensor field without nodes has no array. Raises InputError for what is no such structure.
    """
    single = not isinstance(given, list)
    roots = [given] if single else given
    walk = _Walk(schema, roots)
    try:
        walk.find()
        found = walk.arrays()
    except (TypeError, IndexError, KeyError, AttributeError):
        _explain(schema, roots)  # the fast path does not say which node
        raise
    if schema.has_lists and walk.references > walk.found:
        refuse_cycles(schema, found)
    return found, single


class _Walk:
    """Finds the nodes of nested values, each once."""

    def __init__(self, schema: Schema, roots: list[Any]) -> None:
        self.schema, self.roots = schema, roots
        self.members: dict[tuple[str, str], list[Any]] = {
            (type, name): [] for type, known in schema.types.items() for name in known
        }
        self.references = self.found = 0

    def find(self) -> None:
        """Find all nodes of each constructor."""
        seen: dict[str, dict[int, Any]] = {type: {} for type in self.schema.types}
        waiting = defaultdict(list, {self.schema.port.type: self.roots})
        while waiting:
            type, level = waiting.popitem()
            self.references += len(level)
            (self._level if len(level) > _FEW else self._each)(type, level, seen[type], waiting)
        self.found = sum(map(len, seen.values()))

    def _each(self, type: str, level: list[Any], known: dict[int, Any], waiting: Waiting) -> None:
        """Sort new nodes by constructor, one by one; their structures wait to be read."""
        readers = self.schema.readers[type]
        for node in level:
            if id(node) in known:
                continue
            known[id(node)] = node
            if not isinstance(node, tuple):
                self._name(type, node)
                continue
            reader = readers[node[0]]
            self.members[type, node[0]].append(node)
            for item, inner in reader.single:
                waiting[inner].append(item(node))
            for item, inner in reader.lists:
                waiting[inner] += _lists([item(node)])[0]

    def _level(self, type: str, level: list[Any], known: dict[int, Any], waiting: Waiting) -> None:
        """As `_each`, for many nodes at once."""
        fresh = dict(zip(map(id, level), level))
        if not fresh.keys().isdisjoint(known.keys()):
            fresh = {key: node for key, node in fresh.items() if key not in known}
        known.update(fresh)
        nodes: Iterable[Any] = fresh.values()
        if not _all_are(tuple, nodes):
            for node in (each for each in nodes if not isinstance(each, tuple)):
                self._name(type, node)
            nodes = [node for node in nodes if isinstance(node, tuple)]
        readers = self.schema.readers[type]
        for name, group in groupby(sorted(nodes, key=_FIRST), _FIRST):
            same, reader = list(group), readers[name]
            self.members[type, name] += same
            for item, inner in reader.single:
                waiting[inner] += map(item, same)
            for item, inner in reader.lists:
                waiting[inner] += chain.from_iterable(_lists(list(map(item, same))))

    def _name(self, type: str, node: Any) -> None:
        """A node that is the name of a constructor without fields."""
        if not isinstance(node, str) or self.schema.types[type][node].fields:
            raise TypeError("a node is a tuple, or the name of a constructor without fields")
        self.members[type, node].append(node)

    def arrays(self) -> Arrays:
        """The arrays of the nodes that were found."""
        schema, numbers = self.schema, dict[str, dict[int, int]]()
        for type in schema.types:
            numbers[type] = {}
            ids = schema.numbering(type, lambda c: len(self.members[type, c.name]))  # noqa: B023
            for name, (first, _) in ids.items():
                same = self.members[type, name]
                if schema.types[type][name].fields:
                    numbers[type].update(zip(map(id, same), range(first, first + len(same))))
                else:
                    numbers[type].update(dict.fromkeys(map(id, same), first))

        def ids_of(type: str, nodes: Iterable[Any], count: int) -> numpy.ndarray:
            return numpy.fromiter(map(numbers[type].__getitem__, map(id, nodes)), numpy.int64,
                                  count)  # fmt: skip

        made = {schema.port.roots: ids_of(schema.port.type, self.roots, len(self.roots))}
        for (type, name), same in self.members.items():
            reader = schema.readers[type][name]
            if not set(map(len, same)) <= {reader.length} and reader.fields:
                raise TypeError("a node has another number of fields")
            for item, field in reader.fields:
                column = list(map(item, same))
                if field.offsets:
                    ends = [0, *accumulate(map(len, column))]
                    made[field.offsets] = numpy.array(ends, numpy.int64)
                    made[field.values] = ids_of(field.type, chain.from_iterable(column), ends[-1])
                elif field.type:
                    made[field.values] = ids_of(field.type, column, len(column))
                elif column:
                    made[field.values] = schema.column(field, column, self._fail(same, field))
        return made

    def _fail(self, nodes: list[Any], field: FieldPort) -> Fail:
        """Raises InputError for the field of a node, by its position among those."""

        def fail(number: int, problem: str) -> NoReturn:
            wanted = nodes[number]
            at = next((s.at for s in _preorder(self.schema, self.roots) if s.node is wanted), "")
            raise InputError(
                f"{self.schema.where}{at}: field '{field.name}' {problem}",
                "the values of a field have one shape and dtype in all nodes",
            )

        return fail


def _lists(parts: list[Any]) -> list[list[Any]]:
    """The values of a field with any number of structures."""
    if not _all_are(list, parts):
        raise TypeError("any number of structures is a list")
    return parts


def _all_are(kind: type, values: Iterable[Any]) -> bool:
    return all(issubclass(each, kind) for each in set(map(type, values)))


class _Step:
    """A node that a walk in preorder visits, and its address in errors."""

    def __init__(self, tree: int, number: int, type: str, node: Any, above: str) -> None:
        self.type, self.node, self.above = type, node, above
        name = node if isinstance(node, str) else _name_of(node)
        self.name = name
        self.at = f", tree {tree}, node {number}" + (f" ('{name}')" if name else "")
        self.tree = tree


def _name_of(node: Any) -> str:
    """The constructor that a node names, '' for what is no node."""
    named = isinstance(node, tuple) and node and isinstance(node[0], str)
    return str(node[0]) if named else ""


def _preorder(schema: Schema, roots: list[Any]) -> Iterator[_Step]:
    """The nodes of trees, each once, numbered in each tree; skips what is no structure."""
    seen = set[tuple[str, int]]()
    for tree, root in enumerate(roots):
        stack, number = [(schema.port.type, root, "")], 0
        while stack:
            type, node, above = stack.pop()
            if (type, id(node)) in seen:
                continue
            seen.add((type, id(node)))
            step = _Step(tree, number, type, node, above)
            yield step
            number += 1
            constructor = schema.types[type].get(step.name)
            if constructor is None or isinstance(node, str):
                continue
            below = []
            for field, value in zip(constructor.fields, node[1:]):
                parts = value if field.offsets and isinstance(value, list) else [value]
                above = f"{step.at}: field '{field.name}'"
                below += [(field.type, part, above) for part in parts if field.type]
            stack += reversed(below)


def _explain(schema: Schema, roots: list[Any]) -> None:
    """Raise InputError for the first node that is no value of its type."""
    for step in _preorder(schema, roots):
        type, node = step.type, step.node
        where = f"{schema.where}{step.above or f', tree {step.tree}'}"
        if not isinstance(node, (tuple, str)):
            raise InputError(
                f"{where}: got {kind_of(node)}, expected {article(type)}",
                f"{article(type)} is a tuple, one of: "
                f"{', '.join(map(form, schema.types[type].values()))}",
            )
        if step.name not in schema.types[type]:
            raise schema.unknown(type, node[0] if node and not step.name else step.name, step.at)
        constructor = schema.types[type][step.name]
        count = 0 if isinstance(node, str) else len(node) - 1
        if count != len(constructor.fields):
            raise InputError(
                f"{schema.where}{step.at}: got {count_of(count, 'field')}, "
                f"expected {len(constructor.fields)}",
                f"write {form(constructor)}",
            )
        for field, value in zip(constructor.fields, node[1:] if count else ()):
            if field.offsets and not isinstance(value, list):
                raise InputError(
                    f"{schema.where}{step.at}: field '{field.name}' is {kind_of(value)}, "
                    f"expected a list of {field.type}",
                    "any number of structures is a list, also one or none",
                )


def kind_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a tensor of shape {list(shape)}"
    return f"{type(value).__name__} {' '.join(short_repr(value).split())}"


def form(constructor: ConstructorPort) -> str:
    """How a node of a constructor is written."""
    fields = (f"[{f.name}, ...]" if f.offsets else f.name for f in constructor.fields)
    return f'("{constructor.name}"{"".join(f", {each}" for each in fields)})'.replace(
        '")', '",)' if not constructor.fields else '")'
    )


def refuse_cycles(schema: Schema, arrays: Arrays) -> None:
    """Raise InputError for a structure that contains itself."""
    try:
        TopologicalSorter(references(schema, arrays)).prepare()
    except CycleError as error:
        (type, node), *_ = error.args[1]
        name, _ = _constructor_of(schema.number_arrays(arrays, type), node)
        raise InputError(
            f"{schema.where}: {article(type)} contains itself, node {node} ('{name}'), "
            f"over {count_of(len(error.args[1]) - 1, 'node')}",
            "structures have no cycles",
        ) from None


# ---- arrays to nested values ---------------------------------------------------------------------


def nested_of(schema: Schema, arrays: Arrays, root: int) -> Any:
    """The structure of a node as nested tuples; a node that occurs several times is one object."""
    numbers = {type: schema.number_arrays(arrays, type) for type in schema.types}
    made: dict[Key, Any] = {}
    opened: dict[Key, list[Any]] = {}  # the parts of nodes whose structures are not made yet
    stack = [(schema.port.type, root)]
    while stack:
        key = stack[-1]
        parts = opened.pop(key, None)
        if parts is not None:
            made[key] = tuple([_build_part(each, made) for each in parts])
            stack.pop()
        elif key in made:
            stack.pop()
        else:
            name, place = _constructor_of(numbers[key[0]], key[1])
            opened[key] = parts = [name]
            for field in schema.types[key[0]][name].fields:
                parts.append(_part(arrays, field, place))
                below = parts[-1].keys if field.type else []
                if any(each in opened for each in below):
                    raise InputError(f"{schema.where}, node {key[1]} ('{name}'): contains itself",
                                     "structures have no cycles")  # fmt: skip
                stack += [each for each in below if each not in made]
    return made[schema.port.type, root]


class _Below:
    """The structures of a field of a node."""

    def __init__(self, keys: list[Key], listed: bool) -> None:
        self.keys, self.listed = keys, listed


def _build_part(part: Any, made: Mapping[Key, Any]) -> Any:
    """A part of a tuple, with the structures that it refers to."""
    if not isinstance(part, _Below):
        return part
    inner = [made[key] for key in part.keys]
    return inner if part.listed else inner[0]


def _part(arrays: Arrays, field: FieldPort, place: int) -> Any:
    """A field of a node: a tensor, or the nodes that it refers to."""
    if not field.type:
        return arrays[field.values][place]
    first, end = place, place + 1
    if field.offsets:
        first, end = arrays[field.offsets][place : place + 2].tolist()
    keys = [(field.type, node) for node in arrays[field.values][first:end].tolist()]
    return _Below(keys, bool(field.offsets))


def _constructor_of(numbers: Mapping[str, tuple[int, int]], node: int) -> tuple[str, int]:
    """The constructor of a node, and the position among its nodes."""
    for name, (first, count) in numbers.items():
        if first <= node < first + count:
            return name, node - first
    raise IndexError(node)

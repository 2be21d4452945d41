"""Structures in other numberings: nodes of all constructors together, parents, graphs, lists.

All are converted to nodes with the children of each one after another, and these, once the
declaration is known, to the numbering of the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.base.text import article, count_of, quote_list
from anydim.base.user_values import short_repr
from anydim.runtime.forest import (
    Arrays,
    Fields,
    Schema,
    by_constructor,
    check_names,
    increasing,
    integers,
    put,
    within,
)
from anydim.runtime.lists import ConstructorPort, FieldPort

_WHERE = "structure"  # in errors before the input is known


def of_kinds(kinds: Any, children: Any, fields: Fields, roots: Any) -> Numbered:
    """Number nodes that are given by kinds and a table of children, padded with -1."""
    table, found = integers(_WHERE, "children", children, 2), numpy.asarray(kinds)
    if found.ndim != 1 or len(found) != len(table):
        raise InputError(
            f"{_WHERE}: kinds has shape {list(found.shape)}, children {list(table.shape)}",
            "give one kind and one row of children per node",
        )
    there = table >= 0
    return _number_nodes(found, table[there], there.sum(axis=1), fields, roots)


def of_parents(parents: Any, fields: Fields, kinds: Any) -> Numbered:
    """Number nodes that are given by their parents; -1 marks a root."""
    above = integers(_WHERE, "parents", parents)
    within(_WHERE, above, -1, len(above), "parents refer", count_of(len(above), "node"))
    order = numpy.argsort(above, kind="stable")[int((above < 0).sum()) :]
    sizes = numpy.bincount(above[above >= 0], minlength=len(above))
    return _number_nodes(kinds, order, sizes, fields, None)


def of_graph(graph: Any, data: Mapping[str, str], kind: str) -> Numbered:
    """The nodes of a directed graph of networkx; edges lead to children."""
    if not graph.is_directed():
        raise InputError(
            f"{_WHERE}: the graph is not directed, so its nodes have no children",
            "use networkx.bfs_tree(graph, root)",
        )
    names = {node: number for number, node in enumerate(graph)}
    edges = map(names.__getitem__, chain.from_iterable(graph.edges()))
    ends = numpy.fromiter(edges, numpy.int64).reshape(-1, 2)
    order = numpy.argsort(ends[:, 0], kind="stable")
    sizes = numpy.bincount(ends[:, 0], minlength=len(names))
    kinds = [each for _, each in graph.nodes(data=kind)]
    known = None if None in kinds else kinds
    attributes = _Attributes(graph, data)
    return _number_nodes(
        known, ends[order, 1], sizes, attributes, None, lambda n: short_repr([*names][n])
    )


def of_lists(schema: Schema, given: Any) -> Numbered:
    """Lists of lists of values in the layout of Arrow.

    A list is a node of the constructor with any number of structures alone; a value is one of the
    constructor with one tensor alone.
    """
    known = schema.types[schema.port.type].values()
    lists = [c.name for c in known if [bool(f.offsets) for f in c.fields] == [True]]
    values = [c for c in known if [bool(f.type) for f in c.fields] == [False]]
    if len(lists) != 1 or len(values) != 1:
        raise InputError(
            f"{schema.where}: nested lists need a constructor with any number of structures alone, "
            f"and one with a tensor alone; {schema.port.type} has "
            f"{quote_list(c.name for c in known)}",
            "give nested tuples, or ad.Structure",
        )
    *sizes, held = _levels(schema, given)
    counts = [len(each) for each in sizes]
    inner = sum(counts)
    children = numpy.arange(counts[0], inner + len(held))
    sizes.append(numpy.zeros(len(held), numpy.int64))
    kinds = numpy.repeat([lists[0], values[0].name], [inner, len(held)])
    fields = {values[0].name: {values[0].fields[0].name: held}}
    return _number_nodes(kinds, children, numpy.concatenate(sizes), fields, numpy.arange(counts[0]))


def _levels(schema: Schema, given: Any) -> Iterator[numpy.ndarray]:
    """The lengths of the lists of each level, then the values of the last one."""
    first, end = 0, None
    while getattr(given, "offsets", None) is not None:
        _refuse_nulls(schema, given)
        parts = (each() if callable(each) else each for each in (given.offsets, given.values))
        offsets, given = parts
        until = None if end is None else end + 1
        offsets = integers(schema.where, "offsets", offsets)[first:until]
        increasing(schema.where, offsets, "offsets of lists", None)
        yield numpy.diff(offsets)
        first, end = int(offsets[0]), int(offsets[-1])  # a slice keeps the values of the whole
        if end > len(given):
            raise InputError(
                f"{schema.where}: offsets of lists end with {end}, "
                f"of {count_of(len(given), 'value')}"
            )
    _refuse_nulls(schema, given)
    yield numpy.asarray(given)[first:end]


def _refuse_nulls(schema: Schema, given: Any) -> None:
    nulls = getattr(given, "null_count", 0)
    if nulls:
        raise InputError(f"{schema.where}: the array has {count_of(nulls, 'null')}",
                         "fill or drop the nulls")  # fmt: skip


def _number_nodes(
    kinds: Any, children: numpy.ndarray, sizes: numpy.ndarray, fields: Any, roots: Any,
    named: Callable[[int], str] = str,
) -> Numbered:  # fmt: skip
    """Check the children of nodes; without roots, they are the nodes that no node refers to.

    `named` is the name of a node in errors.
    """
    count = len(sizes)
    within(_WHERE, children, 0, count, "children refer", count_of(count, "node"))
    if roots is None:
        above = numpy.full(count, -1)
        above[children] = numpy.repeat(numpy.arange(count), sizes)
        roots = numpy.flatnonzero(above < 0)
        _check_reached(above, children, sizes, named)
    ends = numpy.concatenate([[0], numpy.cumsum(sizes)])
    known = None if kinds is None else numpy.asarray(kinds)
    if known is not None and known.shape != (count,):
        raise InputError(f"{_WHERE}: kinds has shape {list(known.shape)}, expected [{count}]")
    return Numbered(known, children, ends, fields, roots)


def _check_reached(
    above: numpy.ndarray, children: numpy.ndarray, sizes: numpy.ndarray,
    named: Callable[[int], str],
) -> None:  # fmt: skip
    """Raise InputError for a node that no root reaches: it is part of a cycle, or below one.

    `above` is one of the nodes that refer to a node, -1 for a root. In structures without cycles
    all ways up end in roots, which takes a step for each power of two of the height.
    """
    count = len(above)
    up = numpy.where(above < 0, numpy.arange(count), above)
    for _ in range(count.bit_length()):
        further = up[up]
        if (further == up).all():
            break
        up = further
    if not (above[up] >= 0).any():
        return
    reached = _reachable_nodes(numpy.flatnonzero(above < 0), children, sizes)
    lost = numpy.flatnonzero(~reached)
    if not len(lost):
        return  # there are cycles, below roots: a call refuses them
    cycle = [int(up[lost[0]])]
    while int(above[cycle[-1]]) != cycle[0]:
        cycle.append(int(above[cycle[-1]]))
    raise InputError(
        f"{_WHERE}: no root reaches node {named(min(cycle))}, which contains itself, "
        f"over {count_of(len(cycle), 'node')}",
        "structures have no cycles",
    )


def _reachable_nodes(
    roots: numpy.ndarray, children: numpy.ndarray, sizes: numpy.ndarray
) -> numpy.ndarray:
    """A mask of the nodes in the trees of some roots."""
    ends = numpy.cumsum(sizes).tolist()
    below, firsts = children.tolist(), [0, *ends]
    reached = numpy.zeros(len(sizes), bool)
    waiting = roots.tolist()
    while waiting:
        node = waiting.pop()
        if not reached[node]:
            reached[node] = True
            waiting += below[firsts[node] : ends[node]]
    return reached


@dataclass(frozen=True, eq=False)
class Numbered:
    """Nodes numbered over all constructors, with the children of each node one after another."""

    kinds: Any
    children: numpy.ndarray
    ends: numpy.ndarray
    fields: Any
    roots: Any

    def counts(self) -> dict[str, int]:
        if self.kinds is None:
            return {"nodes": len(self.ends) - 1}
        names, counts = numpy.unique(self.kinds, return_counts=True)
        return dict(zip(map(str, names.tolist()), counts.tolist()))

    def arrays(self, schema: Schema) -> Arrays:
        keys = [(type, name) for type, known in schema.types.items() for name in known]
        kinds = self._kinds(schema, keys)
        ends = numpy.bincount(kinds, minlength=len(keys)).cumsum()[:-1]
        members = dict(zip(keys, numpy.split(numpy.argsort(kinds, kind="stable"), ends)))
        ids, types = numpy.zeros(len(kinds), numpy.int64), numpy.zeros(len(kinds), numpy.int64)
        for place, type in enumerate(schema.types):
            numbers = schema.numbering(type, lambda c: len(members[type, c.name]))  # noqa: B023
            for name, (first, _) in numbers.items():
                nodes = members[type, name]
                shared = not schema.types[type][name].fields
                ids[nodes] = first if shared else numpy.arange(first, first + len(nodes))
                types[nodes] = place
        made: Arrays = {}
        view = _Numbers(schema, self, ids, types)
        roots = integers(schema.where, "roots", numpy.reshape(self.roots, -1))
        made[schema.port.roots] = view.of(schema.port.type, roots, "roots")
        for (type, name), nodes in members.items():
            view.structures(schema.types[type][name], nodes, made)
        self._tensors(schema, members, made)
        return made

    def _kinds(self, schema: Schema, keys: list[tuple[str, str]]) -> numpy.ndarray:
        """The number of the constructor of each node, over all types."""
        if self.kinds is None:
            return self._kinds_of_counts(schema, keys)
        if self.kinds.dtype.kind in "iu":
            within(schema.where, self.kinds, 0, len(keys), "kinds refer",
                    count_of(len(keys), "constructor"))  # fmt: skip
            return self.kinds
        names, numbers = numpy.unique(self.kinds, return_inverse=True)
        table = []
        for name in map(str, names.tolist()):
            (key,) = by_constructor(schema, {name: {}})
            table.append(keys.index(key))
        return numpy.array(table, numpy.int64)[numbers.reshape(-1)]

    def _kinds_of_counts(self, schema: Schema, keys: list[tuple[str, str]]) -> numpy.ndarray:
        """The constructor of each node by its number of children."""
        sizes = numpy.diff(self.ends)
        made = numpy.full(len(sizes), -1)
        for number, (type, name) in enumerate(keys):
            fields = [f for f in schema.types[type][name].fields if f.type]
            if not any(f.offsets for f in fields):
                same = sizes == len(fields)
                _one_kind(schema, made[same], name)
                made[same] = number
        rest = made < 0
        for number, (type, name) in enumerate(keys):
            fields = [f for f in schema.types[type][name].fields if f.type]
            if any(f.offsets for f in fields):
                _one_kind(schema, made[rest & (made >= 0)], name)
                made[rest] = number
        if (made < 0).any():
            node = int(numpy.flatnonzero(made < 0)[0])
            raise InputError(
                f"{schema.where}, node {node}: no constructor has {int(sizes[node])} structures",
                f"constructors: {quote_list(name for _, name in keys)}",
            )
        return made

    def _tensors(
        self, schema: Schema, members: Mapping[tuple[str, str], numpy.ndarray], made: Arrays
    ) -> None:
        """Add the arrays of tensor fields."""
        wanted = {}
        for type, name in members:
            fields = (f for f in schema.types[type][name].fields if not f.type)
            wanted[type, name] = ConstructorPort(name, tuple(fields))
        if isinstance(self.fields, _Attributes):
            given = self.fields.columns(schema, wanted, members)
        else:
            given = by_constructor(schema, self.fields)
        for key, nodes in members.items():
            parts = given.get(key, {})
            if not len(nodes) and not parts:
                continue
            check_names(schema, wanted[key], parts)
            for field in wanted[key].fields:
                put(schema, wanted[key], field, parts[field.name], made)
                have = len(made[field.values])
                if have != len(nodes):
                    raise InputError(
                        f"{schema.where}: field '{field.name}' of '{key[1]}' has "
                        f"{count_of(have, 'value')}, and {count_of(len(nodes), 'node')} "
                        f"of this constructor",
                        "give one value per node, in the order of the nodes",
                    )


def _one_kind(schema: Schema, others: numpy.ndarray, name: str) -> None:
    if (others >= 0).any():
        raise InputError(
            f"{schema.where}: several constructors have the same number of structures as '{name}'",
            "give the constructor of each node: kinds=",
        )


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The numbers that the declaration gives to nodes, and their types."""

    schema: Schema
    source: Numbered
    ids: numpy.ndarray
    types: numpy.ndarray

    def of(self, type: str, nodes: numpy.ndarray, what: str) -> numpy.ndarray:
        """The numbers of nodes, which must be of a type."""
        place = list(self.schema.types).index(type)
        within(self.schema.where, nodes, 0, len(self.ids), f"{what} refer",
                count_of(len(self.ids), "node"))  # fmt: skip
        wrong = self.types[nodes] != place
        if wrong.any():
            node = int(nodes[numpy.flatnonzero(wrong)[0]])
            other = list(self.schema.types)[self.types[node]]
            raise InputError(
                f"{self.schema.where}: {what} refer to node {node}, {article(other)}, "
                f"expected {article(type)}"
            )
        return self.ids[nodes]

    def structures(self, constructor: ConstructorPort, nodes: numpy.ndarray, made: Arrays) -> None:
        """Add the arrays of the fields of structures of a constructor with these nodes."""
        fields = [field for field in constructor.fields if field.type]
        starts, sizes = self.source.ends[nodes], numpy.diff(self.source.ends)[nodes]
        lists = [field for field in fields if field.offsets]
        least = len(fields) - len(lists)
        if len(lists) > 1:
            raise InputError(
                f"{self.schema.where}: '{constructor.name}' has {len(lists)} lists of structures",
                "children of a node in one row do not say where a list ends: "
                "give nested values, or the arrays of the fields",
            )
        wrong = (sizes < least) if lists else (sizes != least)
        if wrong.any():
            first = numpy.flatnonzero(wrong)[0]
            raise InputError(
                f"{self.schema.where}, node {int(nodes[first])} ('{constructor.name}'): has "
                f"{count_of(int(sizes[first]), 'child', 'ren')}, expected "
                f"{'at least ' if lists else ''}{least}",
            )
        before = 0  # fields in front of the place, of one structure each
        listed_sizes = sizes - least
        after_list = numpy.zeros_like(sizes)
        for field in fields:
            what = f"children of '{constructor.name}'"
            if not field.offsets:
                inner = self.source.children[starts + before + after_list]
                made[field.values] = self.of(field.type, inner, what)
                before += 1
                continue
            ends = numpy.concatenate([[0], numpy.cumsum(listed_sizes)])
            places = numpy.arange(ends[-1]) + numpy.repeat(starts + before - ends[:-1],
                                                           listed_sizes)  # fmt: skip
            made[field.offsets] = ends
            made[field.values] = self.of(field.type, self.source.children[places], what)
            after_list = listed_sizes


@dataclass(frozen=True, eq=False)
class _Attributes:
    """The attributes of the nodes of a graph of networkx."""

    graph: Any
    names: Mapping[str, str]

    def columns(
        self, schema: Schema, wanted: Mapping[tuple[str, str], ConstructorPort],
        members: Mapping[tuple[str, str], numpy.ndarray],
    ) -> dict[tuple[str, str], Mapping[str, Any]]:  # fmt: skip
        """The values of the fields of each constructor with nodes."""
        return {
            key: {f.name: self._column(schema, f, nodes) for f in wanted[key].fields}
            for key, nodes in members.items() if len(nodes)
        }  # fmt: skip

    def _column(self, schema: Schema, field: FieldPort, nodes: numpy.ndarray) -> Any:
        """The values of a field for some nodes."""
        name = self.names.get(field.name, field.name)
        values = [value for _, value in self.graph.nodes(data=name)]
        held = [values[node] for node in nodes.tolist()]

        def fail(number: int, problem: str) -> NoReturn:
            node = list(self.graph)[nodes[number]]
            raise InputError(
                f"{schema.where}, node {short_repr(node)}: attribute '{name}' {problem}"
            )

        if any(value is None for value in held):
            fail(next(n for n, value in enumerate(held) if value is None), "is missing")
        return schema.column(field, held, fail)

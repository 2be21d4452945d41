"""Structures of user-declared types: forests of nodes as arrays.

The nodes of a type are numbered constructor after constructor, in the order of the declaration. A
field is an array with one value per node of its constructor; a field of structures has the numbers
of nodes. Other numberings are converted with numpy. Nested values are read by `nested.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.collector import collector_paused
from anydim.base.errors import InputError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.text import article, count_of
from anydim.runtime import numberings
from anydim.runtime.arrays import as_array
from anydim.runtime.forest import (
    Arrays,
    Fields,
    Schema,
    by_constructor,
    check_arrays,
    check_names,
    integers,
    is_pair,
    of_numbers,
    put,
)
from anydim.runtime.lists import StructurePort
from anydim.runtime.nested import arrays_of, form, kind_of, nested_of


@public
class Structure:
    """A forest of structures as arrays.

    Nodes of a type are numbered constructor after constructor, in the order of the declaration:
    with `type Tree { leaf(float(D) x); node(Tree left, Tree right) }` and 3 leaves, the nodes 0 to
    2 are leaves, and 3 is the first `node`. A constructor without fields has one node. A node may
    be part of several others.

        ad.Structure({"leaf": {"x": x}, "node": {"left": [0, 3], "right": [1, 2]}}, roots=[4])

    Args:
        fields: By constructor and field: an array with one value per node of the constructor, or
            the numbers of nodes. A field with any number of structures is a pair: the numbers of
            nodes for all nodes one after another, and offsets `[nodes + 1]` that increase from 0.
            Constructors without nodes may be missing. A constructor's name that several types have
            is `"Type.constructor"`.
        roots: The numbers of the roots, one per tree; an integer for a single structure.
        declared: The declaration, `model.lists["t"]`. With it, the arrays are checked now, and
            `nested` works.

    Attributes:
        roots: The numbers of the roots, as they were given.
        single: Whether it is a single structure, whose results have no axis of trees.
        declared: The declaration, if it is known.

    Raises:
        InputError: The arrays do not fit the declaration.
    """

    def __init__(self, fields: Fields, roots: Any, declared: StructurePort | None = None) -> None:
        self._take(_Fields(fields, roots), declared)

    def _take(self, source: Any, declared: StructurePort | None) -> None:
        """Store a source of arrays, which computes them by `arrays(schema)`."""
        roots = source.roots
        if roots is None:
            raise InputError(
                "a structure needs `roots`, the numbers of the roots of its trees",
                "give roots=[...], or an integer for a single structure",
            )
        self.single = as_array(roots, "structure: roots").ndim == 0
        self.roots = integers("structure", "roots", numpy.reshape(roots, -1) if self.single
                              else roots)  # fmt: skip
        self._source, self.declared = source, declared
        if declared is not None and not isinstance(source, _Bound):
            schema = Schema(declared)
            arrays = source.arrays(schema)
            self._source = _Bound(declared, arrays, self.single, frozenset(schema.untyped))

    @staticmethod
    def _from_source(source: Any, declared: StructurePort | None) -> Structure:
        made = object.__new__(Structure)
        made._take(source, declared)
        return made

    @staticmethod
    def bound(port: StructurePort, arrays: Arrays, single: bool) -> Structure:
        """A structure of arrays by the names of a declaration, as a program makes them."""
        return Structure._from_source(_Bound(port, arrays, single), port)

    @staticmethod
    def of(given: Any, declared: StructurePort) -> Structure:
        """A structure from any form that a model takes, converted once for many calls.

        Args:
            given: Nested tuples, a list of them, or another form of structures.
            declared: The declaration, `model.lists["t"]`.

        Raises:
            InputError: The values do not fit the declaration.
        """
        schema = Schema(declared)
        arrays, single = read(schema, given)
        bound = _Bound(declared, arrays, single, frozenset(schema.untyped))
        return Structure._from_source(bound, declared)

    @staticmethod
    def from_kinds(
        kinds: Any, children: Any, fields: Fields, roots: Any = None,
        declared: StructurePort | None = None,
    ) -> Structure:  # fmt: skip
        """A structure whose nodes have numbers in any order of kinds.

        Args:
            kinds: `[N]`: the constructor of each node, by name, or by its number among those of
                all types in the declaration.
            children: `[N, most]`: the structures of each node in the order of its fields; -1 for
                none.
            fields: By constructor: the values of its tensor fields, one per node of this
                constructor, in the order of the nodes.
            roots: Nodes. None: those that no node refers to; a node that none of them reaches is
                an error, as it is part of a cycle.
            declared: As in `Structure`.

        Raises:
            InputError: The arrays do not fit each other or the declaration.
        """
        return Structure._from_source(numberings.of_kinds(kinds, children, fields, roots), declared)

    @staticmethod
    def from_parents(
        parents: Any, fields: Fields, kinds: Any = None, declared: StructurePort | None = None
    ) -> Structure:
        """A structure from the parent of each node; children are in the order of their numbers.

        Args:
            parents: `[N]`: the number of the parent, -1 for a root.
            fields: As in `from_kinds`.
            kinds: As in `from_kinds`. None: the constructor with this number of structures, or
                else the one with any number.
            declared: As in `Structure`.

        Raises:
            InputError: As in `from_kinds`.
        """
        return Structure._from_source(numberings.of_parents(parents, fields, kinds), declared)

    @staticmethod
    def from_networkx(
        graph: Any, data: Mapping[str, str] | None = None, kind: str = "kind",
        declared: StructurePort | None = None,
    ) -> Structure:  # fmt: skip
        """A structure from a directed graph of networkx: a tree, a forest or any acyclic graph.

        Edges lead to children, which are in the order of the edges. Nodes without incoming edges
        are the roots.

        Args:
            graph: The graph.
            data: The attribute of nodes for each field. None: attributes have the field's name.
            kind: The attribute with the constructor. Without it, as in `from_parents`.
            declared: As in `Structure`.

        Raises:
            InputError: The graph is not directed, no root reaches a node, or a node does not fit
                the declaration.
        """
        return Structure._from_source(numberings.of_graph(graph, data or {}, kind), declared)

    @staticmethod
    def concat(parts: Sequence[Structure]) -> Structure:
        """One forest with the trees of several.

        Args:
            parts: Structures of one declaration.
        """
        declared = next((part.declared for part in parts if part.declared), None)
        return Structure._from_source(_Parts(tuple(parts)), declared)

    def __len__(self) -> int:
        """The number of trees."""
        return len(self.roots)

    def nested(self, row: int = 0) -> Any:
        """A tree as nested tuples; nodes that are shared are one object.

        Args:
            row: The number of the tree.

        Raises:
            InputError: It was made without `declared`, or the tree has a cycle.
        """
        bound = self._source
        if not isinstance(bound, _Bound):
            raise InputError("structure: its declaration is not known",
                             'give declared=model.lists["t"]')  # fmt: skip
        root = bound.held[bound.port.roots][range(len(self))[row]]
        with collector_paused():
            return nested_of(Schema(bound.port), bound.held, int(root))

    def _inputs(self, schema: Schema) -> Arrays:
        """The inputs of the program; raises InputError for arrays that do not fit."""
        made: Arrays = self._source.arrays(schema)
        return made

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self._source.counts().items())
        return f"<structure: {count_of(len(self), 'tree')}; nodes: {counts or 'none'}>"


# ---- sources of arrays ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fields:
    """Arrays in the numbering of the declaration."""

    fields: Any
    roots: Any

    def counts(self) -> dict[str, int]:
        return {name: _count(parts) for name, parts in self.fields.items()}

    def arrays(self, schema: Schema) -> Arrays:
        made: Arrays = {schema.port.roots: numpy.reshape(self.roots, -1)}
        given = by_constructor(schema, self.fields)
        for type, known in schema.types.items():
            for constructor in known.values():
                parts = given.get((type, constructor.name))
                if parts is not None:
                    check_names(schema, constructor, parts)
                for field in constructor.fields:
                    if parts is not None:
                        put(schema, constructor, field, parts[field.name], made)
                    elif field.type:  # no nodes
                        empty = numpy.zeros(0, numpy.int64)
                        value = (empty, numpy.zeros(1, numpy.int64)) if field.offsets else empty
                        put(schema, constructor, field, value, made)
        return check_arrays(schema, made)


def _count(fields: Mapping[str, Any]) -> int:
    """The number of nodes of a constructor."""
    for value in fields.values():
        return len(value[1]) - 1 if is_pair(value) else len(value)
    return 1


@dataclass(frozen=True)
class _Bound:
    """Arrays by the names of a declaration; another one may name them otherwise.

    The `untyped` ones were numbers of Python, which take the type of the program.
    """

    port: StructurePort
    held: Any
    single: bool
    untyped: frozenset[str] = frozenset()

    @property
    def roots(self) -> Any:
        found = self.held[self.port.roots]
        return found[0] if self.single else found

    def _fields(self) -> dict[str, dict[str, Any]]:
        fields: dict[str, dict[str, Any]] = {}
        for type, constructor, field in Schema(self.port).fields():
            if field.values in self.held:
                value = self.held[field.values]
                value = value.tolist() if field.values in self.untyped else value
                value = (value, self.held[field.offsets]) if field.offsets else value
                fields.setdefault(f"{type}.{constructor.name}", {})[field.name] = value
        return fields

    def counts(self) -> dict[str, int]:
        schema = Schema(self.port)
        ids = {type: schema.number_arrays(self.held, type) for type in schema.types}
        several = len(ids) > 1
        return {
            f"{type}.{name}" if several else name: count
            for type, numbers in ids.items() for name, (_, count) in numbers.items()
        }  # fmt: skip

    def arrays(self, schema: Schema) -> Arrays:
        if self.port == schema.port:
            schema.untyped.update(() if schema.specs else self.untyped)
            typed = {
                name: self._convert_numbers(schema, name)
                for name in self.untyped & schema.specs.keys()
            }
            return check_arrays(schema, {**self.held, **typed})
        return _Fields(self._fields(), self.held[self.port.roots]).arrays(schema)

    def _convert_numbers(self, schema: Schema, name: str) -> numpy.ndarray:
        """An array of Python numbers in the type of the program."""
        dtype = schema.specs[name].dtype.numpy
        try:
            return of_numbers(self.held[name], dtype)
        except TypeError as error:
            raise InputError(f"{schema.where}: {name} is no {dtype.name}: {error}") from None


@dataclass(frozen=True)
class _Parts:
    """The forests of several structures, one after another."""

    parts: tuple[Structure, ...]

    @property
    def roots(self) -> Any:
        return numpy.concatenate([numpy.zeros(0, numpy.int64), *(p.roots for p in self.parts)])

    def counts(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for part in self.parts:
            for name, count in part._source.counts().items():
                made[name] = made.get(name, 0) + count
        return made

    def arrays(self, schema: Schema) -> Arrays:
        return join_forests(schema, [part._inputs(schema) for part in self.parts])


def join_forests(schema: Schema, forests: Sequence[Arrays]) -> Arrays:
    """The arrays of several forests as one forest."""
    if len(forests) == 1:
        return forests[0]
    shifts: dict[str, list[Any]] = {}
    for type in schema.types:
        ids = [schema.number_arrays(each, type) for each in forests]
        counts = {name: [each[name][1] for each in ids] for name in schema.types[type]}
        shared = {name for name, each in schema.types[type].items() if not each.fields}
        total = schema.numbering(type, lambda c: sum(counts[c.name]))  # noqa: B023
        shifts[type] = [numpy.zeros(0, numpy.int64) for _ in forests]
        before = dict.fromkeys(counts, 0)
        for number, each in enumerate(ids):
            table = []
            for name, (_, count) in each.items():
                start = total[name][0] + before[name]
                table.append(numpy.arange(start, start + count))
                before[name] += 0 if name in shared else count
            shifts[type][number] = numpy.concatenate(table)
    made: Arrays = {}

    def nodes(type: str, name: str) -> numpy.ndarray:
        return numpy.concatenate(
            [table[each[name]] for table, each in zip(shifts[type], forests)]
            or [numpy.zeros(0, numpy.int64)]
        )

    made[schema.port.roots] = nodes(schema.port.type, schema.port.roots)
    for _, _, field in schema.fields():
        if field.type:
            made[field.values] = nodes(field.type, field.values)
            if field.offsets:
                sizes = [numpy.diff(each[field.offsets]) for each in forests]
                made[field.offsets] = numpy.concatenate([[0], *sizes]).cumsum()
            continue
        parts = [each[field.values] for each in forests if field.values in each]
        full = [part for part in parts if len(part)] or parts[:1]
        if len({(part.dtype, part.shape[1:]) for part in full}) > 1:
            raise InputError(
                f"{schema.where}: the parts have shapes "
                f"{', '.join(sorted({str(list(part.shape)) for part in full}))} in a field",
                "the values of a field have one shape and dtype in all nodes",
            )
        if full:
            made[field.values] = numpy.concatenate(full)
    return made


# ---- all forms -----------------------------------------------------------------------------------


def read(schema: Schema, given: Any) -> tuple[Arrays, bool]:
    """The arrays of a structure input in any form, and whether it is a single structure."""
    if isinstance(given, Structure):
        return given._inputs(schema), given.single
    if isinstance(given, list) and given and all(isinstance(each, Structure) for each in given):
        return _Parts(tuple(given)).arrays(schema), False
    if hasattr(given, "nodes") and hasattr(given, "is_directed"):
        return numberings.of_graph(given, {}, "kind").arrays(schema), False
    if hasattr(given, "offsets") and hasattr(given, "values"):
        return numberings.of_lists(schema, given).arrays(schema), False
    if not isinstance(given, (list, tuple, str)):
        type = schema.port.type
        forms = ", ".join(map(form, schema.types[type].values()))
        raise InputError(
            f"{schema.where}: got {kind_of(given)}, expected {article(type)}, or a list of them",
            f"{article(type)} is a tuple, one of: {forms}; or give an ad.Structure",
        )
    return arrays_of(schema, given)

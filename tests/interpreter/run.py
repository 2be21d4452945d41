"""Runs a definition on arrays, or on structures: a case is selected for each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, convert_array, from_numpy
from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    Definition,
    Invoke,
    Item,
    Name,
    Parameter,
    StructureType,
    Term,
    targets,
)
from tests.interpreter.cases import (
    Path,
    Site,
    Types,
    copies,
    nodes,
    selected,
    structure_calls,
    types_of,
)
from tests.interpreter.decided import is_decided, run_decided
from tests.interpreter.execution import executed
from tests.interpreter.frame import Shape, framed
from tests.interpreter.kinds import NotCovered
from tests.interpreter.numbers import conversion
from tests.interpreter.signatures import Signatures
from tests.interpreter.survey import setting, surveyed
from tests.interpreter.terms import Stored

Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    """A result: its element type in the language, and its elements.

    Floats are float64, except for storage-only types.
    """

    kind: str
    values: Array


def run(
    definition: Definition, arguments: Sequence[Any], attributes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run a definition and return its results by name: `Result`s and structures.

    An argument is an array, or a structure: a tuple of its constructor's name and the values of its
    fields. `attributes` gives values to attributes, and to "...p" the rank of an ellipsis. Raises
    InputError for sizes that do not fit and out-of-bounds positions, NotCovered for what this
    interpreter does not support.
    """
    with numpy.errstate(all="ignore"):
        if definition.types:
            return _Structures.of(definition, arguments, attributes or {})
        stored = [_stored(array) for array in arguments]
        if is_decided(definition):
            found = run_decided(definition, stored, attributes or {})
            return {name: _result(name, each) for name, each in found.items()}
        given = [(each.kind, each.shape) for each in stored]
        frame = surveyed(framed(definition, given, attributes or {}))
        parameters = {p.name: each for p, each in zip(definition.parameters, stored)}
        tensors = executed(frame, parameters)
    return {name: _result(name, tensors[name]) for name in definition.results}


def _stored(array: Array) -> Stored:
    return Stored(from_numpy(array.dtype).name, array.shape, _elements(array))


def _elements(array: Array) -> list[Any]:
    dtype = from_numpy(array.dtype)
    if dtype.is_float:
        return list(convert_array(array, numpy.dtype(numpy.float64)).ravel().tolist())
    if not dtype.is_native:
        array = array.astype(numpy.int64)
    return list(array.ravel().tolist())


def _result(name: str, stored: Stored) -> Result:
    dtype = DTYPES[stored.kind]
    if any(value is None for value in stored.data):
        raise NotCovered(f"an element of '{name}' is never written")
    wide = dtype.is_float and not dtype.stored
    held = numpy.array(stored.data, numpy.float64 if dtype.is_float else None)
    held = held.astype(numpy.int64) if held.size == 0 and not dtype.is_float else held
    values = held if wide else convert_array(held, dtype.numpy)
    return Result(stored.kind, values.reshape(stored.shape))


# ---- structures --------------------------------------------------------------------------------


@dataclass
class _Node:
    """A definition at one structure: the statements of its case, and the results of its calls.

    `calls` counts those that have their results, `given` the tensors that it starts from.
    """

    definition: Definition
    path: Path
    sizes: Mapping[str, int]
    attributes: Mapping[str, Any]
    given: dict[str, tuple[Parameter, Stored]]
    calls: int = 0


@dataclass
class _Call:
    """A call of a node with `waiting` structures to compute, one for each of a list."""

    node: _Node
    item: Invoke
    number: int
    callee: Definition
    waiting: list[_Node]
    rows: list[dict[str, Stored]]
    listed: bool


@dataclass
class _Structures:
    """A run over structures, with a stack of its own: structures may be very deep.

    `values` are the structures that statements assign, which have numbers.
    """

    signatures: Signatures
    kinds: Mapping[str, Mapping[str, str]]
    values: list[Any] = field(default_factory=list)

    @staticmethod
    def of(
        definition: Definition, arguments: Sequence[Any], attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The results of a definition."""
        types = types_of(definition)
        structures, tensors = {}, {}
        sizes: dict[str, int] = {}
        kinds: dict[str, str] = {}
        for parameter, value in zip(definition.parameters, arguments):
            if parameter.type in types:
                structures[parameter.name] = value
                _survey(value, parameter.type, types, sizes, kinds)
            else:
                tensors[parameter.name] = parameter, _stored(value)
        given = [(each.kind, each.shape) for _, each in tensors.values()]
        signatures = Signatures.of(definition, given, attributes, sizes, kinds)
        made = _Structures(signatures, signatures.kinds)
        found = made._computed(made._node(definition, structures, tensors, sizes, attributes))
        structural = dict(zip(definition.results, definition.result_types))
        return {
            name: made._value(stored) if structural.get(name) else _result(name, stored)
            for name, stored in found.items()
        }

    def _node(
        self, definition: Definition, structures: Mapping[str, Any],
        tensors: Mapping[str, tuple[Parameter, Stored]], sizes: Mapping[str, int],
        attributes: Mapping[str, Any],
    ) -> _Node:  # fmt: skip
        types = types_of(definition)
        path = selected(definition, structures)
        given = dict(tensors)
        for name, part in path.fields.items():
            if part.type not in types:
                kind = TYPE_NAMES.get(part.type) or self.kinds[definition.name][part.type]
                given[name] = part, _stored(_array(path.values[name], kind))
        for name in path.numbered(types):
            given[name] = Parameter(name, "int64"), Stored("int64", (), [len(self.values)])
            self.values.append(path.values.get(name))
        return _Node(definition, path, {**sizes, **path.counts}, attributes, given)

    def _computed(self, root: _Node) -> dict[str, Stored]:
        stack: list[_Call] = []
        node = root
        while True:
            call = self._next_call(node)
            while call is not None and not call.waiting:
                self._finish(call)
                call = self._next_call(call.node)
            if call is not None:
                stack.append(call)
                node = call.waiting.pop(0)
                continue
            results = self._tensors(node, node.path.items, node.definition.results)
            while stack:
                call = stack[-1]
                call.rows.append(results)
                if call.waiting:
                    node = call.waiting.pop(0)
                    break
                self._finish(stack.pop())
                node = call.node
                break
            else:
                return results

    def _next_call(self, node: _Node) -> _Call | None:
        """The first call with structures that has no results yet."""
        for number, item, callee in structure_calls(node.path, node.definition):
            return self._call(node, item, number, callee)
        return None

    def _call(self, node: _Node, item: Invoke, number: int, callee: Definition) -> _Call:
        own, types = types_of(node.definition), types_of(callee)
        before = node.path.items[:number]
        structures: dict[str, Any] = {}
        wanted: dict[str, Term] = {}
        listed = ""
        sizes: dict[str, int] = {}
        for term, parameter in zip(item.call.arguments, callee.parameters):
            if parameter.type not in types:
                wanted[parameter.name] = term
                continue
            assert isinstance(term, Name)
            part = node.path.fields.get(term.name)
            if part is None:
                made = self._tensors(node, before, [term.name])[term.name]
                structures[parameter.name] = self._value(made)
            else:
                structures[parameter.name] = node.path.values[term.name]
                listed = parameter.name if part.shape else listed
            given = parameter.type if part is None else part.type
            if given in own:
                known = {n: size for n, size in node.sizes.items() if n not in node.path.counts}
                sizes.update(_passed(types[parameter.type], own[given], known, types, own))
        tensors = self._arguments(node, before, wanted, callee)
        head = framed(_made(node, before), *_given(node), node.sizes)
        settings = {each.name: setting(each.value, head, None) for each in item.call.settings}
        rows = [structures]
        if listed:
            rows = [{**structures, listed: each} for each in structures[listed]]
        waiting = [self._node(callee, row, tensors, sizes, settings) for row in rows]
        return _Call(node, item, number, callee, waiting, [], bool(listed))

    def _arguments(
        self, node: _Node, before: tuple[Item, ...], wanted: Mapping[str, Term], callee: Definition
    ) -> dict[str, tuple[Parameter, Stored]]:
        """The tensors of a call, from the statements before it."""
        parameters = {each.name: each for each in callee.parameters}
        written = {*targets(before)}
        named = {name: term.name for name, term in wanted.items()
                 if isinstance(term, Name) and term.name in {*written, *node.given}}  # fmt: skip
        made = list(before)
        for name, term in wanted.items():
            if name not in named:
                made.append(Assignment(f"{name}@", (), "", False, term))
        found: dict[str, Stored] = {}
        needed = {named.get(name, f"{name}@") for name in wanted}
        if any(name in written or name not in node.given for name in needed):
            found = self._tensors(node, tuple(made), tuple(needed))
        tensors = {}
        for name in wanted:
            source = named.get(name, f"{name}@")
            stored = found[source] if source in found else node.given[source][1]
            if name not in named:
                kind = TYPE_NAMES.get(parameters[name].type, stored.kind)
                convert = conversion(stored.kind, kind)
                stored = Stored(kind, (), [convert(value) for value in stored.data])
            tensors[name] = parameters[name], Stored(stored.kind, stored.shape, list(stored.data))
        return tensors

    def _tensors(
        self, node: _Node, items: tuple[Item, ...], names: Sequence[str]
    ) -> dict[str, Stored]:
        """Run statements of a node; returns some of its tensors."""
        frame = framed(_made(node, items), *_given(node), node.sizes)
        frame.wider = self.signatures.wider.get(node.definition.name, {})
        tensors = executed(surveyed(frame), {name: s for name, (_, s) in node.given.items()})
        for site in node.path.sites:
            self._make(site, tensors, node.definition)
        return {name: tensors[name] for name in names}

    def _make(self, site: Site, tensors: Mapping[str, Stored], definition: Definition) -> None:
        """Make the node of a site, unless a branch leaves it out."""
        types, kinds = types_of(definition), self.kinds.get(definition.name, {})
        held = [tensors.get(name) for name in site.arguments]
        (number,) = tensors[site.target].data
        made: list[Any] = [site.constructor]
        for part, stored in zip(site.fields, held):
            if stored is None or any(value is None for value in stored.data):
                return
            if part.type in types:
                made.append(self._value(stored))
            else:
                kind = TYPE_NAMES.get(part.type) or kinds.get(part.type, stored.kind)
                made.append(_array(_result(part.name, stored).values, kind)[()])
        self.values[number] = tuple(made)

    def _value(self, stored: Stored) -> Any:
        """The structure with a number."""
        (number,) = stored.data
        if number is None or self.values[number] is None:
            raise NotCovered("a structure that is never made")
        return self.values[number]

    def _finish(self, call: _Call) -> None:
        """Replace a call by statements that copy its results."""
        node, made = call.node, []
        for target, result in zip(call.item.targets, call.callee.results):
            stored = [row[result] for row in call.rows]
            source = f"{target}@{node.calls}"
            if not call.listed:
                (whole,) = stored
            elif stored:
                if len({(each.kind, each.shape) for each in stored}) > 1:
                    raise InputError(f"'{target}' has rows of different sizes")
                data = [value for each in stored for value in each.data]
                whole = Stored(stored[0].kind, (len(stored), *stored[0].shape), data)
            else:
                known = self.signatures.results.get(call.callee.name, {})
                if result not in known:
                    raise NotCovered(f"the shape of '{target}' without structures")
                whole = Stored(known[result][0], (0, *known[result][1]), [])
            node.given[source] = Parameter(source, source), whole
            made.append(copies(target, source, len(whole.shape)))
        items = node.path.items
        node.path.items = (*items[: call.number], *made, *items[call.number + 1 :])
        node.calls += 1


def _made(node: _Node, items: tuple[Item, ...]) -> Definition:
    """A definition without matches, of what a node has and statements of it."""
    parameters = tuple(parameter for parameter, _ in node.given.values())
    return replace(node.definition, parameters=parameters, statements=items)


def _given(node: _Node) -> tuple[list[tuple[str, Shape]], Mapping[str, Any]]:
    return [(each.kind, each.shape) for _, each in node.given.values()], node.attributes


def _array(value: Any, kind: str) -> Array:
    return convert_array(numpy.asarray(value), DTYPES[kind].numpy)


def _survey(
    value: Any, kind: str, types: Types, sizes: dict[str, int], kinds: dict[str, str]
) -> None:
    """Find the sizes that all structures of a type share, and the types of its type variables."""
    for each, fields in nodes(value, kind, types):
        counts = {term.name for part in fields for term in part.shape
                  if part.type in types and isinstance(term, Name)}  # fmt: skip
        for part, inner in zip(fields, each[1:]):
            if part.type in types:
                continue
            shape = numpy.shape(inner)
            if len(shape) != len(part.shape):
                raise InputError(f"'{part.name}' has {len(shape)} axes, expected {len(part.shape)}")
            for term, size in zip(part.shape, shape):
                if isinstance(term, Name) and term.name not in counts:
                    if sizes.setdefault(term.name, size) != size:
                        known = sizes[term.name]
                        raise InputError(f"'{part.name}' has a size {size}, expected {known}")
            if part.type not in TYPE_NAMES and part.type not in kinds:
                typed = isinstance(inner, (numpy.generic, numpy.ndarray))
                found = from_numpy(numpy.asarray(inner).dtype).name
                kinds[part.type] = "float32" if found == "float64" and not typed else found


def _passed(
    wanted: StructureType, given: StructureType, known: Mapping[str, int], types: Types, own: Types
) -> dict[str, int]:
    """The sizes of a structure type in a callee, of what the caller knows of the same type."""
    found: dict[str, int] = {}
    waiting, seen = [(wanted, given)], set()
    for ours, theirs in waiting:
        if ours.name in seen:
            continue
        seen.add(ours.name)
        for left, right in zip(ours.constructors, theirs.constructors):
            for part, other in zip(left.fields, right.fields):
                if part.type in types:
                    waiting.append((types[part.type], own[other.type]))
                    continue
                for term, size in zip(part.shape, other.shape):
                    if isinstance(term, Name) and isinstance(size, Name) and size.name in known:
                        found[term.name] = known[size.name]
    return found

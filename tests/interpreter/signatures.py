"""Element types and shapes of the results of recursive definitions, before any node is computed.

They are a fixed point over all cases: a call of a definition has the results that its cases have
up to now. A result has the common type of its cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    Definition,
    Item,
    Name,
    Number,
    Parameter,
    Range,
    Spread,
    walk,
)
from tests.interpreter.cases import (
    Path,
    copies,
    paths,
    shared_names,
    structure_calls,
    types_of,
)
from tests.interpreter.frame import Frame, Shape, framed, size_of
from tests.interpreter.kinds import Kind, NotCovered, joined, settled
from tests.interpreter.survey import setting, surveyed
from tests.interpreter.terms import kind_of

Type = tuple[str, Shape]
_MAX_ROUNDS = 30


@dataclass
class Signatures:
    """Types of the arguments and results of definitions that call each other.

    `arguments` are the types of the tensors that a definition gets, `results` those it gives, and
    `wider` the common types of the tensors that all its cases share.
    """

    sizes: Mapping[str, int]
    kinds: dict[str, dict[str, str]]  # of the type variables of fields, by definition
    definitions: dict[str, Definition] = field(default_factory=dict)
    arguments: dict[str, list[Type]] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    results: dict[str, dict[str, Type]] = field(default_factory=dict)
    wider: dict[str, dict[str, Kind]] = field(default_factory=dict)

    @staticmethod
    def of(
        definition: Definition, given: Sequence[Type], attributes: Mapping[str, Any],
        sizes: Mapping[str, int], kinds: Mapping[str, str],
    ) -> Signatures:  # fmt: skip
        """The signatures of a definition with these tensors, and of all that it calls."""
        made = Signatures(sizes, {definition.name: dict(kinds)})
        made._enter(definition, list(given), attributes)
        for _ in range(_MAX_ROUNDS):
            before = repr((made.arguments, made.results, made.wider))
            for name in list(made.arguments):
                for path in paths(made.definitions[name]):
                    try:
                        made._visit(made.definitions[name], path)
                    except (NotCovered, InputError, KeyError):
                        continue  # a path whose sizes differ at every call
            if before == repr((made.arguments, made.results, made.wider)):
                break
        for wider in made.wider.values():
            wider.update({name: settled(kind) for name, kind in wider.items()})
        for results in made.results.values():
            results.update({name: (settled(kind) or "", s) for name, (kind, s) in results.items()})
        return made

    def _enter(
        self, definition: Definition, given: list[Type], attributes: Mapping[str, Any]
    ) -> None:
        name = definition.name
        self.definitions[name] = definition
        self.attributes.setdefault(name, attributes)
        known = self.arguments.setdefault(name, given)
        for number, ((old, shape), (new, _)) in enumerate(zip(known, given)):
            known[number] = joined([old, new]) or old, shape
        self.results.setdefault(name, {})
        self.wider.setdefault(name, {})

    def _visit(self, definition: Definition, path: Path) -> None:
        types, name = types_of(definition), definition.name
        tensors = [each for each in definition.parameters if each.type not in types]
        head = replace(definition, parameters=tuple(tensors), statements=())
        sizes = {**self.sizes, **path.counts}
        outer = framed(head, self.arguments[name], self.attributes[name], sizes)
        fields = [each for each in path.fields.values() if each.type not in types]
        given = list(self.arguments[name])
        for each in fields:
            kind = TYPE_NAMES.get(each.type) or self.kinds.get(name, {}).get(each.type, "float32")
            given.append((kind, _shape(each, outer)))
        for number in path.numbered(types):
            fields.append(Parameter(number, "int64"))
            given.append(("int64", ()))
        items, complete = self._with_results(definition, path, tensors, given)
        made = replace(head, parameters=(*tensors, *fields, *items[1]), statements=items[0])
        frame = framed(made, given, self.attributes[name], {**outer.sizes, **sizes})
        shared = {*shared_names(definition.statements), *definition.results}
        called = {
            target for _, call, _ in structure_calls(path, definition) for target in call.targets
        }
        frame.wider, frame.adapting = self.wider[name], frozenset(shared | called)
        surveyed(frame)
        self._register(definition, path, frame)
        if not complete:
            return
        wider, results = self.wider[name], self.results[name]
        for tensor in shared & frame.definers.keys():
            wider[tensor] = joined([wider.get(tensor), frame.kinds[tensor]])
        for result in definition.results:
            shape = tuple(size or 0 for size in frame.shapes[result])
            results[result] = wider[result] or "", results.get(result, ("", shape))[1]

    def _with_results(
        self, definition: Definition, path: Path, tensors: Sequence[Parameter], given: list[Type]
    ) -> tuple[tuple[tuple[Item, ...], list[Parameter]], bool]:
        """The items of a path with parameters instead of calls with structures.

        Ends at the first call of which nothing is known; then it is not complete.
        """
        made: list[Item] = []
        more: list[Parameter] = []
        calls = {
            number: (item, callee) for number, item, callee in structure_calls(path, definition)
        }
        for number, item in enumerate(path.items):
            if number not in calls:
                made.append(item)
                continue
            call, callee = calls[number]
            listed = any(
                isinstance(each, Name) and each.name in path.fields and path.fields[each.name].shape
                and path.fields[each.name].type in types_of(definition)
                for each in call.call.arguments
            )  # fmt: skip
            for target, result in zip(call.targets, callee.results):
                if result in self.results.get(callee.name, {}):
                    kind, shape = self.results[callee.name][result]
                    source = Parameter(f"{target}@{number}", f"{target}@{number}")
                    more.append(source)
                    given.append((kind, (1, *shape) if listed else shape))
                    made.append(copies(target, source.name, len(shape) + listed))
                elif callee.name == definition.name:
                    made.append(_own(target, result, path, listed))
                else:
                    return (tuple(made), more), False
        return (tuple(made), more), True

    def _register(self, definition: Definition, path: Path, frame: Frame) -> None:
        """Note the types of the arguments of the calls in a path."""
        for _, item, callee in structure_calls(path, definition):
            types = types_of(callee)
            given: list[Type] = []
            for term, parameter in zip(item.call.arguments, callee.parameters):
                if parameter.type in types:
                    part = path.fields.get(getattr(term, "name", ""))
                    if part is not None:
                        self._take_kinds(definition, part.type, callee, parameter.type)
                    continue
                if isinstance(term, Name) and term.name in frame.kinds:
                    kind, shape = frame.kinds[term.name], frame.shapes.get(term.name, [None])
                    if kind is None or None in shape:
                        return
                    given.append((kind, tuple(size or 0 for size in shape)))
                elif isinstance(term, Name) and term.name not in {*frame.sizes, *frame.constants}:
                    return
                else:
                    known = kind_of(term, frame, frozenset()) or ""
                    given.append((TYPE_NAMES.get(parameter.type, known), ()))
            settings = {each.name: setting(each.value, frame, None) for each in item.call.settings}
            self._enter(callee, given, settings)

    def _take_kinds(
        self, definition: Definition, given: str, callee: Definition, wanted: str
    ) -> None:
        """Take the element types of a structure that a call passes for type variables."""
        own, types = types_of(definition), types_of(callee)
        known = self.kinds.get(definition.name, {})
        waiting, seen = [(wanted, given)], set[str]()
        for ours, theirs in waiting:
            if ours in seen:
                continue
            seen.add(ours)
            pairs = zip(types[ours].constructors, own[theirs].constructors)
            for part, other in (each for a, b in pairs for each in zip(a.fields, b.fields)):
                kind = TYPE_NAMES.get(other.type) or known.get(other.type)
                if part.type in types:
                    waiting.append((part.type, other.type))
                elif part.type not in TYPE_NAMES and kind is not None:
                    self.kinds.setdefault(callee.name, {}).setdefault(part.type, kind)


def _shape(parameter: Parameter, frame: Frame) -> Shape:
    """The shape of a field, with 1 for a size that is not known."""
    names = {each.name for term in parameter.shape for each in walk(term) if isinstance(each, Name)}
    for name in names - frame.constants.keys():
        frame.sizes.setdefault(name, 1)
    return tuple(size_of(frame, term) for term in parameter.shape)


def _own(target: str, result: str, path: Path, listed: bool) -> Assignment:
    """A statement that gives a recursive call the type and shape of the own result."""
    for item in path.items:
        if isinstance(item, Assignment) and item.target == result:
            if any(isinstance(index, Spread) for index in item.indices):
                break
            made = copies(target, result, len(item.indices), listed)
            row = (Range("@row", Number(0), Number(1)),)
            return replace(made, where=row if listed else ())
    raise NotCovered("a recursive call whose result is only that of another call")

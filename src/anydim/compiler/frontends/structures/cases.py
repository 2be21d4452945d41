"""Splits definitions into cases by `match`: decision trees, and the calls of each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.compiler.frontends.structures.records import (
    Call,
    Case,
    Decision,
    Field,
    Instance,
    Place,
    Site,
    Sources,
    Step,
    structures_of,
)
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Invoke,
    Item,
    MatchBlock,
    Name,
    Number,
    Parameter,
    Pattern,
    StructureType,
    Term,
    items,
    targets,
)


def program_of(
    definition: Definition, attributes: Mapping[str, Any], tensors: Mapping[str, str]
) -> list[Instance]:
    """The instances that a call of a definition reaches, itself first, with their cases.

    `tensors` are the tensors of the program, by parameter.
    """
    types = {each.name: each for each in definition.types}
    sources = tuple((n, each.type) for n, each in enumerate(structures_of(definition)))
    known = _callable_definitions(definition)
    first = Instance(
        definition, sources, tensors, attributes, known, types, dict(zip(types, types))
    )
    found, waiting = {first.key: first}, [first]
    while waiting:
        instance = waiting.pop()
        _Cases(instance).run()
        for case in instance.cases:
            for call in case.calls:
                if call.callee not in found:
                    callee = instance.known[call.callee[0]]
                    known = {**instance.known, **_callable_definitions(callee)}
                    _, sources, given, own = call.callee
                    names = _program_names(callee, sources, types)
                    made = Instance(
                        callee, sources, dict(given), dict(own), known,
                        _renamed_types(callee, names), names,
                    )  # fmt: skip
                    found[call.callee] = made
                    waiting.append(made)
    _name_cases(list(found.values()))
    return list(found.values())


def _callable_definitions(definition: Definition) -> dict[str, Definition]:
    """Definitions that one may call, mutual recursion included."""
    found = {each.name: each for each in definition.callees}
    found.update({each.name: replace(each, family=definition.family) for each in definition.family})
    for each in definition.family:
        found.update({callee.name: callee for callee in each.callees if callee.name not in found})
    return found


def _program_names(
    callee: Definition, sources: Sources, program: Mapping[str, StructureType]
) -> dict[str, str]:
    """Maps the type names of a definition to those of the program."""
    own = {each.name: each for each in callee.types}
    found: dict[str, str] = {}
    waiting = [(p.type, kind) for p, (_, kind) in zip(structures_of(callee), sources) if kind]
    for name, kind in waiting:
        if name in found:
            continue
        found[name] = kind
        for mine, its in zip(own[name].constructors, program[kind].constructors):
            pairs = zip(mine.fields, its.fields)
            waiting += [(a.type, b.type) for a, b in pairs if a.type in own]
    return {**dict(zip(own, own)), **found}


def _renamed_types(callee: Definition, names: Mapping[str, str]) -> dict[str, StructureType]:
    """The types of a definition by their names in the program."""
    return {
        names[kind.name]: replace(kind, name=names[kind.name], constructors=tuple(
            replace(each, fields=tuple(
                replace(part, type=names.get(part.type, part.type)) for part in each.fields
            ))
            for each in kind.constructors
        ))
        for kind in callee.types
    }  # fmt: skip


def _name_cases(instances: Sequence[Instance]) -> None:
    """Give each case a name: definition and constructor, and a number where that is ambiguous."""
    taken: dict[str, int] = {}
    for instance in instances:
        for case in instance.cases:
            stem = ".".join(part for part in (instance.definition.name, case.constructor) if part)
            number = taken[stem] = taken.get(stem, 0) + 1
            case.name = stem if number == 1 else f"{stem}.{number}"


Scope = Mapping[str, Place | Field]
Tests = tuple[tuple[Place, Pattern], ...]
Row = tuple[Tests, tuple[Item, ...], Scope]


class _Cases:
    """Splits an instance into cases."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.definition = instance.definition

    def run(self) -> None:
        names = [each.name for each in self.instance.structures]
        scope: Scope = dict(zip(names, self.instance.places))
        made = self.expand(self.definition.statements, scope, {})
        self.instance.decision = made

    def expand(
        self, block: tuple[Item, ...], scope: Scope, known: dict[Place, str]
    ) -> Decision | int:
        """Builds the decision tree of a block: each `match` becomes a decision."""
        for number, item in enumerate(block):
            if isinstance(item, MatchBlock):
                before, after = block[:number], block[number + 1 :]
                rows: list[Row] = [
                    (self.tests(item, case.patterns, scope), (*before, *case.body, *after), scope)
                    for case in item.cases
                ]
                return self.decide(rows, known, item)
        return self.case(block, scope, known)

    def tests(self, item: MatchBlock, patterns: Sequence[Pattern], scope: Scope) -> Tests:
        found: list[tuple[Place, Pattern]] = []
        for structure, pattern in zip(item.structures, patterns):
            place = scope.get(structure.name)
            if not isinstance(place, Place):
                raise self.instance.error(
                    item.position, f"'{structure.name}' is a structure that the recursion makes",
                    "a match takes parts of the structures that the program gets",
                )  # fmt: skip
            found.append((place, pattern))
        return tuple(found)

    def decide(self, rows: list[Row], known: dict[Place, str], item: MatchBlock) -> Decision | int:
        """Builds the decision tree of pattern rows: the first row that fits decides."""
        rows = [self.advance(row, known) for row in rows]
        if not rows:
            raise self.instance.error(item.position, "no case of the match fits")
        tests, block, scope = rows[0]
        if not tests:
            return self.expand(block, scope, known)
        place = tests[0][0]
        branches = []
        for constructor in self.instance.types[place.type].constructors:
            fitting = [row for row in rows if self.fits(row, place, constructor.name)]
            branches.append(self.decide(fitting, {**known, place: constructor.name}, item))
        return Decision(place, tuple(branches))

    def fits(self, row: Row, place: Place, constructor: str) -> bool:
        """Whether a row may fit a node of this constructor."""
        return all(p.name == constructor for where, p in row[0] if where == place)

    def advance(self, row: Row, known: dict[Place, str]) -> Row:
        """Removes the tests of a row that are decided, and binds their names."""
        tests, block, scope = list(row[0]), row[1], dict(row[2])
        left: list[tuple[Place, Pattern]] = []
        while tests:
            place, pattern = tests.pop(0)
            if pattern.arguments is None:
                if pattern.name != "_":
                    scope[pattern.name] = place
                continue
            if place not in known:
                left.append((place, pattern))
                continue
            record = self.instance.types[place.type].constructor(known[place])
            for parameter, inner in zip(record.fields, pattern.arguments):
                if parameter.type not in self.instance.types:
                    if inner.name != "_":
                        scope[inner.name] = Field(place, record.name, parameter)
                    continue
                step = Step((place.type, record.name), parameter.name)
                below = Place(
                    place.parameter, (*place.steps, step), parameter.type, bool(parameter.shape)
                )
                tests.append((below, inner))
        return tuple(left), block, scope

    def case(self, block: tuple[Item, ...], scope: Scope, known: dict[Place, str]) -> int:
        """Add a case; returns its number."""
        sites: list[Site] = []
        self.written = {*scope, *targets(block)}
        block = tuple(made for item in block for made in self.with_sites(item, sites))
        block = (*_defaults(block, sites), *block)
        calls, statements = [], []
        self.values: list[Assignment] = []
        for item in block:
            call = self.call(item, scope, block) if isinstance(item, Invoke) else None
            if call is None:
                statements.append(item)
            else:
                calls.append(call)
        statements += self.values
        fields = {name: each for name, each in scope.items() if isinstance(each, Field)}
        used = {name for site in sites for name in site.arguments}
        used |= {name for call in calls for _, name in call.passed}
        used |= {
            item.value.name for item in items(tuple(statements))
            if isinstance(item, Assignment) and isinstance(item.value, Name)
        }  # fmt: skip
        nodes = {
            name: each for name, each in scope.items() if name in used and isinstance(each, Place)
        }
        case = Case(self.instance, known, fields, calls, sites, nodes, tuple(statements))
        self.instance.cases.append(case)
        return len(self.instance.cases) - 1

    def with_sites(self, item: Item, sites: list[Site]) -> Iterator[Item]:
        """Yield an item with the numbers of new nodes in place of constructors."""
        if isinstance(item, BranchBlock):
            then, otherwise = (
                tuple(made for inner in block for made in self.with_sites(inner, sites))
                for block in (item.then, item.otherwise)
            )
            yield replace(item, then=then, otherwise=otherwise)
            return
        if not isinstance(item, Invoke) or not item.type:
            yield item
            return
        (target,), number, names = item.targets, len(sites), list[str]()
        written = {*self.written, *(each.name for each in self.definition.parameters)}
        for place, given in enumerate(item.call.arguments):
            if isinstance(given, Name) and given.name in written:
                names.append(given.name)
                continue
            names.append(f"{target}.node{number}.field{place}")
            yield Assignment(names[-1], (), "", False, given, position=given.position)
        name = f"{target}.node{number}"
        kind = self.instance.names[item.type]
        sites.append(Site(name, kind, item.call.name, tuple(names)))
        yield Assignment(target, (), "", False, Name(name), position=item.position)

    def call(self, item: Invoke, scope: Scope, block: tuple[Item, ...]) -> Call | None:
        """A call of a definition over structures; None for another one."""
        callee = self.instance.known.get(item.call.name)
        if callee is None or not structures_of(callee):
            return None
        kinds = {each.name for each in structures_of(callee)}
        places, tensors, several = [], {}, ""
        sources: list[tuple[int, str]] = []
        passed: list[tuple[str, str]] = []
        for parameter, given in zip(callee.parameters, item.call.arguments):
            place = scope.get(given.name) if isinstance(given, Name) else None
            if parameter.name in kinds and isinstance(place, Place):
                places.append(place)
                sources.append((self.instance.held[place.parameter], place.type))
                if place.several:
                    several = self.count_name(place)
                continue
            if parameter.name in kinds:
                sources.append((-1, ""))
            tensor = self.program_tensor(given, block)
            if tensor:
                tensors[parameter.name] = tensor
            else:
                passed.append((parameter.name, self.passed_value(parameter, given)))
        if several and len(places) > 1:
            raise self.instance.error(
                item.position, f"'{callee.name}' takes {len(places)} structures, and one of them "
                "is any number of structures", "call it for one structure",
            )  # fmt: skip
        attributes = {each.name: self.attribute(item.call, each.name) for each in callee.attributes}
        given_attributes = {name: value for name, value in attributes.items() if value is not None}
        if not places:
            raise self.instance.error(
                item.position, f"'{callee.name}' takes no structure of the program",
                "give it a part of a structure that the program gets",
            )  # fmt: skip
        key = (
            callee.name, tuple(sources), tuple(sorted(tensors.items())),
            tuple(sorted(given_attributes.items())),
        )  # fmt: skip
        return Call(item.targets, key, tuple(places), several, tuple(passed), item.position)

    def count_name(self, place: Place) -> str:
        """The size that counts the structures of a place."""
        step = place.steps[-1]
        constructor = self.instance.types[step.of[0]].constructor(step.of[1])
        (term,) = next(each.shape for each in constructor.fields if each.name == step.field)
        assert isinstance(term, Name)
        return term.name

    def program_tensor(self, given: Term, block: tuple[Item, ...]) -> str:
        """The program tensor that an argument names; '' for another value."""
        own = self.instance.tensors
        if isinstance(given, Name) and given.name in own and given.name not in set(targets(block)):
            return own[given.name]
        return ""

    def passed_value(self, parameter: Parameter, given: Term) -> str:
        """The name of an argument's value in the case; an expression is assigned to a new name."""
        if isinstance(given, Name):
            return given.name
        name = f"{parameter.name}.value{len(self.values)}"
        self.values.append(Assignment(name, (), "", False, given, position=given.position))
        return name

    def attribute(self, call: CallTerm, name: str) -> Any:
        """The value of an attribute of a call; None for its default."""
        for setting in call.settings:
            if setting.name == name:
                if isinstance(setting.value, Number):
                    return setting.value.value
                if isinstance(setting.value, Name) and setting.value.name in TYPE_NAMES:
                    return setting.value.name
                known = {each.name: each.default for each in self.definition.attributes}
                known.update(self.instance.attributes)
                if isinstance(setting.value, Name) and setting.value.name in known:
                    return known[setting.value.name]
                raise self.instance.error(setting.position, f"'{name}' is not a constant")
        return None


def _defaults(block: tuple[Item, ...], sites: Sequence[Site]) -> Iterator[Assignment]:
    """Yield a value for each scalar field of a node that only branches assign.

    A case makes its nodes in all calls; nothing refers to those of other branches.
    """
    fields = {name for site in sites for name in site.arguments}
    whole = {
        name for item in block if not isinstance(item, BranchBlock) for name in targets((item,))
    }
    for item in items(block):
        if isinstance(item, Assignment) and item.target in fields - whole and not item.indices:
            fields.remove(item.target)
            yield Assignment(item.target, (), "", False, Number(0), position=item.position)

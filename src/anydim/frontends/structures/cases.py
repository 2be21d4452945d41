"""The calls of a recursion: which case a call runs, and what the case reads, computes and calls.

    match t {                             decision of t: by constructor
      leaf(x) { h(i) = x(i) }             case 0: field x, no calls
      node(l, r) { a = f(l)  b = f(r)     case 1: calls f at t.left and t.right
                   h(i) = a(i) + b(i) }
    }

A definition with values for its tensors is an `Instance`: the tensors of a recursion are those of
the program, the same in all calls. Each of its cases is a definition without structures, over the
tensors of the program, the fields of its structures and the results of its calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Dimension,
    Exists,
    Flat,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Number,
    Parameter,
    Pattern,
    StructureType,
    Term,
    items,
    targets,
    walk,
)


@dataclass(frozen=True)
class Step:
    """From a node to the nodes of a field: `of` is the constructor of the first one."""

    of: tuple[str, str]
    field: str


@dataclass(frozen=True)
class Place:
    """The structure that a parameter and fields below it lead to; `several`: any number of them."""

    parameter: int
    steps: tuple[Step, ...]
    type: str
    several: bool = False


@dataclass(frozen=True)
class Field:
    """A tensor field of the node at a place, which has this constructor."""

    owner: Place
    constructor: str
    parameter: Parameter


@dataclass(frozen=True)
class Call:
    """A call in a case: `targets` are its results in the case, `callee` the instance's key.

    `several` is the size that counts the calls, one for each structure of the first place. `passed`
    are the values of the case that the callee gets, by parameter.
    """

    targets: tuple[str, ...]
    callee: Key
    places: tuple[Place, ...]
    several: str = ""
    passed: tuple[tuple[str, str], ...] = ()
    position: int = 0


@dataclass(frozen=True)
class Site:
    """A node that a case makes: `target` is the number of it, `arguments` its fields."""

    target: str
    type: str
    constructor: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """By the constructor of the node at a place: a case, or another decision."""

    place: Place
    branches: tuple[Decision | int, ...]


Sources = tuple[tuple[int, str], ...]  # by structure: that of the program, and its type there
Key = tuple[str, Sources, tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]


@dataclass(eq=False)
class Case:
    """A case of an instance.

    `sites` are the nodes that it makes, `nodes` the structures that it uses as values.
    """

    instance: Instance
    constructors: dict[Place, str]
    fields: dict[str, Field]
    calls: list[Call]
    sites: list[Site]
    nodes: dict[str, Place]
    statements: tuple[Item, ...]
    name: str = ""

    @property
    def constructor(self) -> str:
        """The constructor of the first structure; empty for any."""
        return self.constructors.get(self.instance.places[0], "")


@dataclass(eq=False)
class Instance:
    """A definition with the names of the program's tensors that its parameters are.

    `sources` are the numbers of the program's structures that its structures are parts of, and
    their types there. Each call gets values for the other parameters, `passed`, also for structures
    that the recursion makes. `types` have the names of the program, and the fields of the
    definition; `names` are the names of the program of the definition's types.
    """

    definition: Definition
    sources: Sources
    tensors: Mapping[str, str]  # by parameter
    attributes: Mapping[str, Any]
    known: Mapping[str, Definition]
    types: Mapping[str, StructureType]
    names: Mapping[str, str]
    cases: list[Case] = field(default_factory=list)
    decision: Decision | int = 0

    @property
    def key(self) -> Key:
        tensors, attributes = sorted(self.tensors.items()), sorted(self.attributes.items())
        return self.definition.name, self.sources, tuple(tensors), tuple(attributes)

    @property
    def structures(self) -> list[Parameter]:
        """The parameters that are parts of the program's structures."""
        own = structures_of(self.definition)
        return [each for each, (source, _) in zip(own, self.sources) if source >= 0]

    @property
    def places(self) -> list[Place]:
        """The structures of these parameters."""
        kinds = (kind for source, kind in self.sources if source >= 0)
        return [Place(number, (), kind) for number, kind in enumerate(kinds)]

    @property
    def held(self) -> tuple[int, ...]:
        """The program's structures that they are parts of."""
        return tuple(source for source, _ in self.sources if source >= 0)

    @property
    def passed(self) -> list[Parameter]:
        """The parameters that get a value in each call."""
        known = {each.name for each in self.structures} | self.tensors.keys()
        return [each for each in self.definition.parameters if each.name not in known]

    @property
    def kinds(self) -> list[str]:
        """The types of its structures."""
        return [place.type for place in self.places]

    def declared(self, name: str) -> Parameter:
        """The parameter of that name."""
        return next(each for each in self.definition.parameters if each.name == name)

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)


def structures_of(definition: Definition) -> list[Parameter]:
    """The structure parameters of a definition."""
    known = {each.name for each in definition.types}
    return [each for each in definition.parameters if each.type in known]


def tensors_of(definition: Definition) -> list[Parameter]:
    """The other parameters."""
    known = {each.name for each in definition.types}
    return [each for each in definition.parameters if each.type not in known]


def reached(root: str, known: Mapping[str, StructureType]) -> list[StructureType]:
    """A type and those of its fields, in the order of their declarations."""
    found, waiting = {root}, [root]
    while waiting:
        fields = chain.from_iterable(c.fields for c in known[waiting.pop()].constructors)
        new = {each.type for each in fields if each.type in known} - found
        found |= new
        waiting += sorted(new)
    return [kind for kind in known.values() if kind.name in found]


def input_name(parameter: str, root: str, kind: StructureType, constructor: str) -> str:
    """The name of a constructor's inputs: `t.leaf`, or `t.List_Tree.cons` of another type."""
    other = re.sub(r"\W+", "_", kind.name).strip("_")
    parts = (parameter, constructor) if kind.name == root else (parameter, other, constructor)
    return ".".join(parts)


def program_of(
    definition: Definition, attributes: Mapping[str, Any], tensors: Mapping[str, str]
) -> list[Instance]:
    """The instances that a call of a definition reaches, itself first, with their cases.

    `tensors` are the tensors of the program, by parameter.
    """
    types = {each.name: each for each in definition.types}
    sources = tuple((n, each.type) for n, each in enumerate(structures_of(definition)))
    known = _known(definition)
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
                    known = {**instance.known, **_known(callee)}
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


def _known(definition: Definition) -> dict[str, Definition]:
    """The definitions that one may call; those of a family know each other."""
    found = {each.name: each for each in definition.callees}
    found.update({each.name: replace(each, family=definition.family) for each in definition.family})
    for each in definition.family:
        found.update({callee.name: callee for callee in each.callees if callee.name not in found})
    return found


def _program_names(
    callee: Definition, sources: Sources, program: Mapping[str, StructureType]
) -> dict[str, str]:
    """The names in the program of the types of a definition: it may name sizes and elements
    otherwise."""
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
    """Separates the cases of an instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.definition = instance.definition

    def run(self) -> None:
        names = [each.name for each in self.instance.structures]
        scope: Scope = dict(zip(names, self.instance.places))
        made = self.expanded(self.definition.statements, scope, {})
        self.instance.decision = made

    def expanded(
        self, block: tuple[Item, ...], scope: Scope, known: dict[Place, str]
    ) -> Decision | int:
        """The decision of a block."""
        for number, item in enumerate(block):
            if isinstance(item, MatchBlock):
                before, after = block[:number], block[number + 1 :]
                rows: list[Row] = [
                    (self.tests(item, case.patterns, scope), (*before, *case.body, *after), scope)
                    for case in item.cases
                ]
                return self.decided(rows, known, item)
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

    def decided(self, rows: list[Row], known: dict[Place, str], item: MatchBlock) -> Decision | int:
        """The decision of the first row that fits."""
        rows = [self.advanced(row, known) for row in rows]
        if not rows:
            raise self.instance.error(item.position, "no case of the match fits")
        tests, block, scope = rows[0]
        if not tests:
            return self.expanded(block, scope, known)
        place = tests[0][0]
        branches = []
        for constructor in self.instance.types[place.type].constructors:
            fitting = [row for row in rows if self.fits(row, place, constructor.name)]
            branches.append(self.decided(fitting, {**known, place: constructor.name}, item))
        return Decision(place, tuple(branches))

    def fits(self, row: Row, place: Place, constructor: str) -> bool:
        """Whether a row may fit a node of this constructor."""
        return all(p.name == constructor for where, p in row[0] if where == place)

    def advanced(self, row: Row, known: dict[Place, str]) -> Row:
        """A row without the tests that are decided; names are bound."""
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
                    several = self.counted(place)
                continue
            if parameter.name in kinds:
                sources.append((-1, ""))
            tensor = self.program_tensor(given, block)
            if tensor:
                tensors[parameter.name] = tensor
            else:
                passed.append((parameter.name, self.passed(parameter, given)))
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

    def counted(self, place: Place) -> str:
        """The size that counts the structures of a place."""
        step = place.steps[-1]
        constructor = self.instance.types[step.of[0]].constructor(step.of[1])
        (term,) = next(each.shape for each in constructor.fields if each.name == step.field)
        assert isinstance(term, Name)
        return term.name

    def program_tensor(self, given: Term, block: tuple[Item, ...]) -> str:
        """The tensor of the program that an argument is; '' for another value."""
        own = self.instance.tensors
        if isinstance(given, Name) and given.name in own and given.name not in set(targets(block)):
            return own[given.name]
        return ""

    def passed(self, parameter: Parameter, given: Term) -> str:
        """The value of the case that an argument is; an expression gets a name."""
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


# ---- cases as definitions ------------------------------------------------------------------------


def definition_of(
    case: Case, known: Mapping[Key, Sequence[tuple[str, int]]], tensor: str = ""
) -> tuple[Definition, dict[str, str]]:
    """A case as a definition without structures, and the name of each argument in the case.

    `known` are the element types and ranks of the results of each callee. The arguments are the
    fields, results of calls, nodes and tensors that the case uses. The tensors that become fields
    of new nodes, or values of calls, are results, too, after those of the definition. With
    `tensor`, this is the only result, and the arguments are what it depends on.
    """
    own = case.instance.definition
    statements, names, results = case.statements, None, own.results
    if tensor:
        (statements, names), results = needed(case, tensor), (tensor,)
    written = set(targets(statements))
    parameters = [each for each in _parameters(case, known) if names is None or each.name in names]
    renamed, copies = dict[str, str](), list[Assignment]()
    for result in results:
        if result in written:
            continue
        inner = renamed[result] = f"{result}.given"
        shape = next(each.shape for each in parameters if each.name == result)
        indices = tuple(Name(f"i{number}") for number in range(len(shape)))
        read = CallTerm(inner, indices) if indices else Name(inner)
        copies.append(Assignment(result, indices, "", False, read))
    exported = dict.fromkeys(name for site in case.sites for name in site.arguments)
    exported.update(dict.fromkeys(name for call in case.calls for _, name in call.passed))
    more = (n for n in exported if not tensor and n in written and n not in results)
    made = replace(
        own, results=(*results, *more), types=(), family=(), statements=(*statements, *copies),
        parameters=tuple(replace(p, name=renamed.get(p.name, p.name)) for p in parameters),
        callees=tuple(case.instance.known[name] for name in _callees(case)),
    )  # fmt: skip
    return made, {renamed.get(each.name, each.name): each.name for each in parameters}


def _parameters(case: Case, known: Mapping[Key, Sequence[tuple[str, int]]]) -> Iterator[Parameter]:
    """The arguments of a case: fields, results of calls, nodes, tensors and values."""
    for name, held in case.fields.items():
        yield replace(held.parameter, name=name)
    for call in case.calls:
        count = (Name(call.several),) if call.several else ()
        for target, (dtype, rank) in zip(call.targets, known.get(call.callee, ())):
            axes = (Name(f"{target}.{axis}") for axis in range(rank))
            yield Parameter(target, dtype, (*count, *axes))
    for name in (*(site.target for site in case.sites), *case.nodes):
        yield Parameter(name, "int64")
    own = case.instance.definition
    types = {each.name for each in own.types}
    passed = case.instance.passed
    yield from (each for each in tensors_of(own) if each not in passed)
    for each in passed:
        yield Parameter(each.name, "int64") if each.type in types else each


def needed(case: Case, tensor: str) -> tuple[tuple[Item, ...], set[str]]:
    """The statements of a case that a tensor depends on, and all names in them."""
    names, kept = {tensor}, list[Item]()
    for item in reversed(case.statements):
        if names.isdisjoint(targets((item,))):
            continue
        kept.append(item)
        for inner in items((item,)):
            names.update(_names_of(inner))
    return tuple(reversed(kept)), names


def _names_of(item: Item) -> Iterator[str]:
    terms: list[Term] = []
    if isinstance(item, Assignment):
        yield item.target
        terms = [*item.indices, item.value]
        for clause in item.where:
            more = clause.indices if isinstance(clause, Exists) else (clause.low, clause.high)
            terms += more
            if isinstance(clause, Exists):
                yield clause.tensor
    elif isinstance(item, Invoke):
        yield from item.targets
        terms = list(item.call.arguments)
    elif isinstance(item, LoopBlock):
        terms = [item.start, item.stop, item.step]
    elif isinstance(item, BranchBlock):
        terms = [item.condition]
    for term in terms:
        for each in walk(term):
            if isinstance(each, (Name, CallTerm)):
                yield each.name
            elif isinstance(each, (Flat, Dimension)):
                yield each.tensor


def _callees(case: Case) -> Iterator[str]:
    """The other definitions that a case calls."""
    found = dict.fromkeys(i.call.name for i in items(case.statements) if isinstance(i, Invoke))
    return (name for name in found if name in case.instance.known)

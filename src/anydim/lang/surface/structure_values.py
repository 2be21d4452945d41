"""Types of the structures that definitions make: new nodes, copies, and results of calls.

Each name that statements assign has a variable: the set of the types that it may have.
Constructors, copies and calls make these sets smaller. The types of results are a fixed point over
all definitions of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.records import dataclass
from anydim.base.text import article, count_of, quote_list
from anydim.lang.surface.patterns import bindings, shown_constructor
from anydim.lang.surface.printer import print_type_name
from anydim.lang.surface.structure_types import Types, alone
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    Constructor,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Parameter,
    Problem,
    Term,
    WhileBlock,
)

TENSOR = ""
_MANY = "(...)"  # after the type of any number of structures
Kinds = frozenset[str]  # canonical names of structure types, and TENSOR
Results = tuple[Parameter | None, ...]  # the type of each result; None for a tensor


@dataclass
class Values:
    """The structures that a definition assigns: their types, by position and name."""

    kinds: dict[tuple[int, str], Parameter] = field(default_factory=dict)
    results: Results = ()

    def add_types(self, block: tuple[Item, ...]) -> tuple[Item, ...]:
        """A block whose new nodes have types."""
        made: list[Item] = []
        for item in block:
            if isinstance(item, Invoke) and item.type:
                kind = self.kinds[item.position, item.targets[0]]
                item = replace(item, type=print_type_name(kind))
            elif isinstance(item, BranchBlock):
                then, otherwise = self.add_types(item.then), self.add_types(item.otherwise)
                item = replace(item, then=then, otherwise=otherwise)
            elif isinstance(item, MatchBlock):
                cases = (replace(case, body=self.add_types(case.body)) for case in item.cases)
                item = replace(item, cases=tuple(cases))
            made.append(item)
        return tuple(made)


def structure_values(definitions: Mapping[str, Definition], types: Types) -> dict[str, Values]:
    """The structures that each definition of a text makes.

    Raises LanguageError for types that do not agree.
    """
    known: dict[str, Sequence[Kinds | None]] = {}
    found: dict[str, _Inferred] = {}
    grows = True
    while grows:
        grows = False
        for name, definition in definitions.items():
            found[name] = _Inferred(definition, definitions, types, known)
            found[name].run()
            results = found[name].results()
            grows = grows or results != known.get(name)
            known[name] = results
    return {name: each.values() for name, each in found.items()}


@dataclass(eq=False)
class _Variable:
    """A name that statements assign; `kinds` is None for any type."""

    name: str
    position: int
    kinds: Kinds | None = None
    same: _Variable | None = None
    given: bool = False  # by a parameter or a pattern

    def root(self) -> _Variable:
        found = self
        while found.same is not None:
            found = found.same
        return found


@dataclass
class _Scope:
    """The variables of a block, with those of the blocks around it."""

    outer: _Scope | None = None
    own: dict[str, _Variable] = field(default_factory=dict)

    def find(self, name: str) -> _Variable | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name].root()
            scope = scope.outer
        return None


class _Inferred:
    """The types of the names of a definition, with what is `known` of the results of all."""

    def __init__(
        self, definition: Definition, others: Mapping[str, Definition], types: Types,
        known: Mapping[str, Sequence[Kinds | None]],
    ) -> None:  # fmt: skip
        self.definition, self.others, self.types, self.known = definition, others, types, known
        self.instances = instances_of(definition, types)
        self.steps: list[Callable[[], None]] = []
        self.assigned: list[tuple[int, str, _Variable]] = []
        self.top = _Scope()
        self.changed = False

    def run(self) -> None:
        for parameter in self.definition.parameters:
            self.top.own[parameter.name] = self._fixed_variable(parameter.name, parameter)
        self._block(self.definition.statements, self.top)
        self.changed = True
        while self.changed:
            self.changed = False
            for step in self.steps:
                step()

    def results(self) -> list[Kinds | None]:
        """The types that the results may have."""
        found = (self.top.find(name) for name in self.definition.results)
        return [None if each is None else each.kinds for each in found]

    def values(self) -> Values:
        """The types of all that statements assign; what has no type yet is a tensor."""
        made = Values()
        for position, name, variable in self.assigned:
            kinds = variable.root().kinds
            if kinds is None or kinds == {TENSOR}:
                continue
            if len(kinds) > 1:
                raise self.definition.error(
                    position, f"the type of '{name}' is not known: {_kinds_text(kinds)}",
                    "make it a field of another structure, or pass it to a definition",
                )  # fmt: skip
            (kind,) = kinds
            made.kinds[position, name] = self.instances[kind]
        single = (kinds and next(iter(kinds)) for kinds in self.results())
        made.results = tuple(self.instances[kind] if kind else None for kind in single)
        return made

    # ---- variables -----------------------------------------------------------------------------

    def _fixed_variable(self, named: str, kind: Parameter) -> _Variable:
        """The variable of a parameter, or of a name in a pattern."""
        name = TENSOR
        if self.types.is_structure(kind):
            name = print_type_name(alone(kind))
            if kind.shape:
                name += _MANY
        return _Variable(named, kind.position, frozenset({name}), given=True)

    def _target(self, name: str, position: int, scope: _Scope) -> _Variable:
        found = scope.find(name)
        if found is not None and found.given and found.kinds != {TENSOR}:
            return _Variable(name, position)  # an error that `check` finds
        if found is None:
            found = scope.own[name] = _Variable(name, position)
        self.assigned.append((position, name, found))
        return found

    def _narrow(self, variable: _Variable, kinds: Kinds) -> bool:
        """Leave only these types to a variable; False if it has none of them."""
        variable = variable.root()
        left = kinds if variable.kinds is None else variable.kinds & kinds
        if left and left != variable.kinds:
            variable.kinds, self.changed = left, True
        return bool(left)

    def _same(
        self, name: str, target: _Variable, source: _Variable, position: int,
        where: str = "statement",
    ) -> None:  # fmt: skip
        """Unify two type variables; `name` is the target's, for errors."""
        target, source = target.root(), source.root()
        if target is source:
            return
        if source.kinds is not None:
            self._assign(name, target, source.kinds, position, where)
            source.kinds = target.kinds
        source.same = target
        self.changed = True

    def _assign(
        self, name: str, target: _Variable, kinds: Kinds, position: int, where: str = "statement"
    ) -> None:
        """Narrow the types of a target to those of the value."""
        if not self._narrow(target, kinds):
            known = target.root().kinds or frozenset()
            here, there = _kinds_text(kinds), _kinds_text(known)
            problem = f"'{name}' is {here} here, and {there} in another {where}"
            raise self.definition.error(
                position, problem, "a name has one type: rename one of them"
            )

    def _several(self, name: str, position: int) -> Exception:
        problem = f"'{name}' is any number of structures, and a result or a field is one"
        return self.definition.error(position, problem, "call a definition for each of them")

    # ---- statements ----------------------------------------------------------------------------

    def _block(self, block: tuple[Item, ...], scope: _Scope) -> None:
        for item in block:
            if isinstance(item, Assignment):
                self._assignment(item, scope)
            elif isinstance(item, Invoke):
                self._invoke(item, scope)
            elif isinstance(item, (LoopBlock, WhileBlock)):
                self._block(item.body, scope)
            elif isinstance(item, BranchBlock):
                self._block(item.then, scope)
                self._block(item.otherwise, scope)
            else:
                self._match(item, scope)

    def _match(self, match: MatchBlock, scope: _Scope) -> None:
        kinds = []
        for name in match.structures:
            found = scope.find(name.name)
            kind = next(iter((found and found.kinds) or {TENSOR}))
            kinds.append(self.instances.get(kind))
        scopes = []
        for case in match.cases:
            inner = _Scope(scope)
            for pattern, matched in zip(case.patterns, kinds):
                if matched is not None:
                    for named, part, _ in bindings(pattern, matched, self.types):
                        inner.own[named.name] = self._fixed_variable(named.name, part)
            bound = set(inner.own)
            self._block(case.body, inner)
            scopes.append({n: each for n, each in inner.own.items() if n not in bound})
        for common in set.intersection(*map(set, scopes)):
            first, *rest = (each[common] for each in scopes)
            scope.own[common] = first
            for other in rest:
                self._same(common, first, other, other.position, "case")

    def _assignment(self, item: Assignment, scope: _Scope) -> None:
        copied = item.value.name if isinstance(item.value, Name) else ""
        source = None if item.indices or item.combine else scope.find(copied)
        target = self._target(item.target, item.position, scope)
        if source is None:
            self._assign(item.target, target, frozenset({TENSOR}), item.position)
            return
        if _is_several(source):
            raise self._several(copied, item.value.position)
        self._same(item.target, target, source, item.position)

    def _invoke(self, item: Invoke, scope: _Scope) -> None:
        arguments = [
            scope.find(each.name) if isinstance(each, Name) else None
            for each in item.call.arguments
        ]
        targets = [self._target(name, item.position, scope) for name in item.targets]
        if item.type:
            made = _Node(self, item, targets[0], arguments)
            made.check()
            self._step(made.run)
        elif item.call.name in self.others:
            callee = self.others[item.call.name]
            self._step(lambda: self._call(item, callee, targets, arguments))
        else:
            for name, target in zip(item.targets, targets):
                self._assign(name, target, frozenset({TENSOR}), item.position)

    def _step(self, step: Callable[[], None]) -> None:
        self.steps.append(step)
        step()

    def _call(
        self, item: Invoke, callee: Definition, targets: Sequence[_Variable],
        arguments: Sequence[_Variable | None],
    ) -> None:  # fmt: skip
        """Take the types of the parameters of a call, and those of its results.

        Arguments of other types are errors of the call, which `structure_calls` finds.
        """
        meant: dict[str, Parameter] = {}
        many = ""
        for parameter, argument in zip(callee.parameters, arguments):
            if argument is None:
                continue
            if not self.types.is_structure(parameter):
                self._narrow(argument, frozenset({TENSOR}))
                continue
            self._narrow(argument, self._fitting(parameter, {}))
            kinds = argument.root().kinds or frozenset()
            if len(kinds) == 1:
                (kind,) = kinds
                many = argument.name if _is_several(argument) else many
                if kind in self.instances:
                    self.types.fits(parameter, self.instances[kind], meant)
        inner = instances_of(callee, self.types)
        for name, target, given in zip(item.targets, targets, self.known.get(callee.name, ())):
            if given is None:
                continue
            kinds = frozenset({TENSOR} & given)
            kinds = kinds.union(*(self._fitting(inner[kind], meant) for kind in given if kind))
            if many and TENSOR not in kinds:
                raise self.definition.error(
                    item.call.position, f"'{callee.name}' gives a structure for each of '{many}'",
                    "only tensors have an axis in front: call it for one structure",
                )  # fmt: skip
            self._assign(name, target, kinds, item.position)

    def _fitting(self, wanted: Parameter, meant: Mapping[str, Parameter]) -> Kinds:
        return frozenset(
            name for name, kind in self.instances.items()
            if self.types.fits(wanted, kind, dict(meant))
        )  # fmt: skip


class _Node:
    """A statement that makes a node."""

    def __init__(
        self, inferred: _Inferred, item: Invoke, target: _Variable,
        arguments: Sequence[_Variable | None],
    ) -> None:  # fmt: skip
        self.inferred, self.item, self.target, self.arguments = inferred, item, target, arguments
        self.name = item.call.name
        self.options: dict[str, Constructor] = {}
        for kind, each in inferred.instances.items():
            for constructor in inferred.types.constructors(each):
                if constructor.name == self.name:
                    self.options[kind] = constructor

    def check(self) -> None:
        """Raise LanguageError for a wrong number of fields, or fields that no call can give."""
        item, error = self.item, self.inferred.definition.error
        if not self.options:
            declared = (
                each.name for each in self.inferred.types.declared.values()
                if self.name in {constructor.name for constructor in each.constructors}
            )  # fmt: skip
            raise error(
                item.call.position, f"'{self.name}' makes {' or '.join(map(article, declared))}, "
                "and no parameter has this type",
                "a definition makes nodes of the types of its parameters and of their fields",
            )  # fmt: skip
        constructor = next(iter(self.options.values()))
        given = len(item.call.arguments)
        if item.call.settings or item.call.default is not None:
            raise error(item.call.position, f"'{self.name}' is a constructor: it takes fields only")
        if given != len(constructor.fields):
            count = len(constructor.fields)
            fields = count_of(count, "field") if count else "no fields"
            problem = f"'{self.name}' has {fields}, but {given} {'is' if given == 1 else 'are'}"
            hint = f"write {shown_constructor(constructor)}"
            raise error(item.call.position, f"{problem} given", hint)
        if len(item.targets) > 1:
            problem = f"'{self.name}' makes one structure, but {len(item.targets)} are assigned"
            raise error(item.position, problem)
        for part in constructor.fields:
            if self.inferred.types.is_list(part):
                raise error(
                    item.call.position, f"field '{part.name}' of '{self.name}' is any number of "
                    "structures, which a definition cannot make", "use fields of one structure",
                )  # fmt: skip

    def run(self) -> None:
        """Narrow the types of the node and of its fields."""
        inferred, item = self.inferred, self.item
        known = self.target.root().kinds
        fitting = {
            kind: constructor for kind, constructor in self.options.items()
            if (known is None or kind in known)
            and all(map(self._fits, constructor.fields, self.arguments))
        }  # fmt: skip
        if fitting:
            inferred._narrow(self.target, frozenset(fitting))
            for number, argument in enumerate(self.arguments):
                if argument is not None:
                    fields = (each.fields[number] for each in fitting.values())
                    inferred._narrow(argument, frozenset(map(self._kind, fields)))
            return
        for number, (term, argument) in enumerate(zip(item.call.arguments, self.arguments)):
            parts = [each.fields[number] for each in self.options.values()]
            if not any(self._fits(part, argument) for part in parts):
                raise self._refusal(parts[0], term, argument)
        inferred._assign(item.targets[0], self.target, frozenset(self.options), item.position)
        names = quote_list(map(print_type_name, map(inferred.instances.__getitem__, self.options)))
        raise inferred.definition.error(
            item.call.position,
            f"the fields of '{self.name}' are of different types",
            f"it makes {names}",
        )

    def _kind(self, part: Parameter) -> str:
        return print_type_name(alone(part)) if self.inferred.types.is_structure(part) else TENSOR

    def _fits(self, part: Parameter, argument: _Variable | None) -> bool:
        kinds = frozenset({TENSOR}) if argument is None else argument.root().kinds
        return kinds is None or self._kind(part) in kinds

    def _refusal(self, part: Parameter, term: Term, argument: _Variable | None) -> Exception:
        error, kind = self.inferred.definition.error, self._kind(part)
        wanted = f"field '{part.name}' of '{self.name}' is {_kinds_text(frozenset({kind}))}"
        parts = next(iter(self.options.values())).fields
        takes = ", ".join(f"{print_type_name(each)} {each.name}" for each in parts)
        name = term.name if isinstance(term, Name) else ""
        if argument is None and name:
            return error(term.position, f"there is no structure '{name}'", wanted)
        if argument is None:
            hint = "assign the structure to a name first"
            return error(term.position, f"{wanted}, and this is an expression", hint)
        if _is_several(argument):
            return self.inferred._several(name, term.position)
        given = _kinds_text(argument.root().kinds or frozenset({TENSOR}))
        hint = f"it has the fields {self.name}({takes})"
        return error(term.position, f"{wanted}, and '{name}' is {given}", hint)


def instances_of(definition: Definition, types: Types) -> dict[str, Parameter]:
    """The structure types of a definition, by canonical name; none if they are invalid."""
    try:
        return types.instances(definition.parameters)
    except (Problem, KeyError):
        return {}  # `check` refuses them


def _is_several(variable: _Variable) -> bool:
    kinds = variable.root().kinds
    return kinds is not None and len(kinds) == 1 and next(iter(kinds)).endswith(_MANY)


def _kinds_text(kinds: Kinds) -> str:
    """The types of a value: `a Tree`, `a tensor`."""
    return " or ".join(article(kind or "tensor") for kind in sorted(kinds))

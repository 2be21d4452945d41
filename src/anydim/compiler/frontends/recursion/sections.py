"""Splits statements into sections: groups of comprehensions, and calls of algorithms."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.errors import LanguageError, UserError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.frontends.recursion.states import variables_of
from anydim.compiler.frontends.structures.item_names import names_of, reads_of
from anydim.compiler.graph.operator import operator
from anydim.lang.resolve.divisions import division_guards
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.operator_names import DATA_SIZED, settings_hint
from anydim.lang.surface.sequences import is_algorithm
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    Attribute,
    BranchBlock,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Number,
    Parameter,
    Range,
    Setting,
    items,
    targets,
)
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Guard, Size, Truth, as_size, prove

Kinds: TypeAlias = dict[str, TensorType]


@dataclass
class Scope:
    """A definition with the types of its variables, as far as they are known."""

    definition: Definition
    known: Mapping[str, Definition]  # the definitions that it may call
    attributes: Mapping[str, Any]
    box: Box
    kinds: Kinds
    guards: list[Guard] = field(default_factory=list)

    @property
    def sizes(self) -> dict[str, Size]:
        """The size variables of the definition."""
        found: dict[str, Size] = {}
        names = {attribute.name for attribute in self.definition.attributes}
        for parameter in self.definition.parameters:
            kind = self.kinds.get(parameter.name)
            for term, size in zip(parameter.shape, kind.shape if kind else ()):
                if isinstance(term, Name) and term.name not in names:
                    found.setdefault(term.name, size)
        return found

    def need(self, guards: Sequence[Guard]) -> None:
        self.guards += [guard for guard in guards if guard not in self.guards]

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)


@dataclass(frozen=True)
class Computation:
    """Comprehensions; `kept` are the variables that its outputs are."""

    group: Group
    kept: tuple[str, ...]


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator that is an algorithm; `kinds` are the types of its results."""

    name: str
    given: tuple[str, ...]
    targets: tuple[str, ...]
    attributes: FrozenMapping[str, Any]
    kinds: tuple[TensorType, ...]


Section: TypeAlias = Computation | OperatorCall


# ---- what is read --------------------------------------------------------------------------------


def read_before(
    statements: Sequence[Item], definition: Definition, bound: Collection[str] = ()
) -> list[str]:
    """Variables that statements read before they write them."""
    variables = variables_of(definition) | set(bound)
    first = _first_writes(definition)
    written, found = set[str](), dict[str, None]()
    for item in statements:
        inside = {i.position for i in items((item,))} if isinstance(item, LoopBlock) else set[int]()
        written |= {name for name, position in first.items() if position in inside}
        earlier = {name for name in variables if first.get(name, -1) < item.position} - written
        maybe = set(targets((item,))) - _always_written(item)  # else they stay as they are
        found.update(dict.fromkeys(sorted(maybe & earlier)))
        for inner in items((item,)):
            read = {
                name for name in reads_of(inner) if first.get(name, -1) <= inner.position
            }  # a name that is assigned below is an index here
            if _keeps(inner, definition, first):
                read |= set(targets((inner,)))
            found.update(dict.fromkeys(sorted(read & (variables - written))))
            if isinstance(inner, (Assignment, Invoke)) and inner is item:
                written |= set(targets((inner,)))
        written |= _always_written(item)
    return list(found)


def _always_written(item: Item) -> set[str]:
    """The variables that an item writes whatever its conditions and ranges are."""
    if isinstance(item, BranchBlock):
        then, otherwise = (
            {name for each in block for name in _always_written(each)}
            for block in (item.then, item.otherwise)
        )
        return then & otherwise
    return set(targets((item,))) if isinstance(item, (Assignment, Invoke)) else set()


def _first_writes(definition: Definition) -> dict[str, int]:
    """The position of the first assignment of each variable that is no parameter."""
    found: dict[str, int] = {}
    parameters = {parameter.name for parameter in definition.parameters}
    for item in items(definition.statements):
        for name in targets((item,)) if isinstance(item, (Assignment, Invoke)) else ():
            if name not in parameters:
                found.setdefault(name, item.position)
    return found


def _keeps(item: Item, definition: Definition, first: Mapping[str, int]) -> bool:
    """Whether an assignment updates its target: partly, or by accumulation."""
    if not isinstance(item, Assignment):
        return False
    if item.combine and not item.initial:
        return True
    taken = {name for name in variables_of(definition) if first.get(name, -1) <= item.position}
    taken |= {attribute.name for attribute in definition.attributes}
    plain = all(isinstance(term, Name) and term.name not in taken for term in item.indices)
    ranged = any(isinstance(clause, Range) for clause in item.where)
    again = first.get(item.target, -1) != item.position
    return bool(item.indices) and again and (not plain or ranged)


# ---- sections ------------------------------------------------------------------------------------


def sections_of(statements: Sequence[Item], scope: Scope, kept: Collection[str]) -> list[Section]:
    """The sections of statements without `while` and recursion; adds the types of variables.

    `kept` are the variables that are used after the statements.
    """
    return list(_sections(statements, scope, kept))


def _sections(statements: Sequence[Item], scope: Scope, kept: Collection[str]) -> Iterator[Section]:
    waiting: list[Item] = []
    for number, item in enumerate(statements):
        own = _called_algorithm(item, scope)
        if not own:
            for inner in items((item,)):
                if own_calls := _called_algorithm(inner, scope):
                    raise scope.error(
                        inner.position, f"'{own_calls}' is an algorithm, and is called in a loop "
                        "or a branch", "call it before, and use its results inside",
                    )  # fmt: skip
            waiting.append(item)
            continue
        rest = statements[number:]
        after = {*kept, *read_before(rest, scope.definition)}
        after.update(name for each in rest for name in names_of(each))
        yield from _computation(waiting, scope, after)
        assert isinstance(item, Invoke)
        yield from _operator_call(item, scope)
        waiting = []
    yield from _computation(waiting, scope, kept)


def _called_algorithm(item: Item, scope: Scope) -> str:
    """The algorithm that an item calls; '' if it calls none."""
    if is_algorithm(item) and isinstance(item, Invoke) and item.call.name not in scope.known:
        return item.call.name
    return ""


def _computation(
    statements: Sequence[Item], scope: Scope, kept: Collection[str]
) -> Iterator[Computation]:
    names = [name for name in dict.fromkeys(targets(tuple(statements))) if name in kept]
    if not names:
        return
    group = group_of(statements, scope, names)
    for tensor, name in zip(group.outputs, names):
        scope.kinds[name] = tensor.type
    yield Computation(group, tuple(names))


def group_of(statements: Sequence[Item], scope: Scope, names: Sequence[str]) -> Group:
    """The comprehensions of statements; `names` are its results."""
    own, sizes = scope.definition, scope.sizes
    needed = [n for n in read_before(statements, own) if n in scope.kinds]
    parameters = tuple(
        Parameter(name, scope.kinds[name].dtype.name, tuple(
            Name(f"{name}.{axis}") for axis in range(scope.kinds[name].rank)
        ))
        for name in needed
    )  # fmt: skip
    more = tuple(Attribute(name, "size") for name in sizes)
    made = replace(
        own, parameters=parameters, results=tuple(names), statements=tuple(statements), family=(),
        callees=tuple(scope.known.values()), attributes=(*own.attributes, *more),
    )  # fmt: skip
    taken = {attribute.name for attribute in own.attributes}
    given = {name: held for name, held in scope.attributes.items() if name in taken}
    group = instantiate(made, [scope.kinds[n] for n in needed], {**given, **sizes}, scope.box)
    source = f"{own.file}:{own.line}: {own.name}"
    group = replace(group, guards=division_guards(group, scope.box, source))
    scope.need(group.guards)
    return group


def _operator_call(item: Invoke, scope: Scope) -> Iterator[Section]:
    if item.call.name in DATA_SIZED:
        raise scope.error(
            item.call.position, f"the size of the result of '{item.call.name}' is known when the "
            "call runs", "call it in a definition without recursion, 'while' and rows",
        )  # fmt: skip
    record = operator(item.call.name)
    given, before = [], list[Item]()
    for number, argument in enumerate(item.call.arguments):
        name = argument.name if isinstance(argument, Name) else ""
        if name not in scope.kinds:
            name = f"{item.targets[0]}.argument{number}"
            before.append(Assignment(name, (), "", False, argument, position=argument.position))
        given.append(name)
    yield from _computation(before, scope, given)
    attributes = {s.name: setting_value(s, scope) for s in item.call.settings}
    try:
        complete = record.complete(attributes)
        kinds = record.infer([scope.kinds[name] for name in given], complete, scope.box)
        scope.need(record.instantiate([scope.kinds[n] for n in given], complete, scope.box).guards)
    except UserError as error:
        problem = f"in this call of '{record.name}': {error.problem}"
        hint = error.hint or settings_hint(item.call, record)
        raise scope.error(item.call.position, problem, hint) from None
    if len(kinds) != len(item.targets):
        has = f"'{record.name}' has {count_of(len(kinds), 'result')}"
        problem = f"{has}, but {len(item.targets)} are assigned"
        raise scope.error(item.position, problem, "name each result")
    scope.kinds.update(zip(item.targets, kinds))
    yield OperatorCall(record.name, tuple(given), item.targets, complete, kinds)


def setting_value(setting: Setting, scope: Scope) -> Any:
    """The value of an attribute in a call of an algorithm."""
    term = setting.value
    if isinstance(term, Number):
        return term.value
    if isinstance(term, Name):
        defaults = {each.name: each.default for each in scope.definition.attributes}
        if term.name in defaults:
            return scope.attributes.get(term.name, defaults[term.name])
        if term.name in scope.sizes:
            return scope.sizes[term.name]
        if term.name in TYPE_NAMES:
            return TYPE_NAMES[term.name]
    negated = getattr(term, "function", "") == "neg"
    inner = term.arguments[0] if negated else None  # type: ignore[union-attr]
    if isinstance(inner, Number):
        return -inner.value
    raise scope.error(
        term.position, f"attribute '{setting.name}' is not a number, a size or an attribute"
    )


def check_sizes(callee: Definition, kinds: Mapping[str, TensorType], scope: Scope) -> None:
    """Check that arguments have the sizes that a definition declares, or add guards."""
    inner = Scope(callee, {}, {}, scope.box, dict(kinds))
    for parameter in callee.parameters:
        for term, size in zip(parameter.shape, kinds[parameter.name].shape):
            wanted = inner.sizes.get(term.name) if isinstance(term, Name) else None
            if isinstance(term, Number):
                wanted = as_size(int(term.value))
            if wanted is None:
                continue
            truth = prove(wanted, "==", size, scope.box)
            message = f"a size of '{parameter.name}' of '{callee.name}' is {wanted}, not {size}"
            if truth is Truth.REFUTED:
                raise scope.error(callee.position, message)
            if truth is Truth.UNKNOWN:
                scope.need([Guard(wanted, "==", size, message)])

"""Runs definitions whose calls and iterations data decides: recursion, `while`, calls for rows.

Statements between such calls run as a definition of their own, over the values so far. Types of
variables are those of their first values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Parameter,
    Term,
    WhileBlock,
    items,
    targets,
    walk,
)
from tests.interpreter.execution import executed
from tests.interpreter.frame import Frame, framed
from tests.interpreter.kinds import NotCovered
from tests.interpreter.numbers import conversion
from tests.interpreter.survey import setting, surveyed
from tests.interpreter.terms import Stored

_MOST_ITERATIONS = 100_000
Values = dict[str, Stored]


def is_decided(definition: Definition) -> bool:
    """Whether a definition calls itself, loops `while`, calls for rows, or calls such a one."""
    return any(_decides(item, definition) for item in items(definition.statements))


def _decides(item: Item, definition: Definition) -> bool:
    if isinstance(item, WhileBlock):
        return True
    if not isinstance(item, Invoke):
        return False
    callee = _callee(item, definition)
    own = {each.name for each in definition.family}
    return bool(item.rows) or item.call.name in own or (callee is not None and is_decided(callee))


def _callee(item: Invoke, definition: Definition) -> Definition | None:
    for each in definition.family:
        if each.name == item.call.name:
            return replace(each, family=definition.family)
    known = {each.name: each for each in definition.callees}
    return known.get(item.call.name)


def run_decided(
    definition: Definition, given: Sequence[Stored], attributes: Mapping[str, Any], opened: int = 1
) -> Values:
    """The results of a definition; `opened` counts the calls of its recursion that are open."""
    frame = framed(definition, [(each.kind, each.shape) for each in given], attributes)
    bound = frame.constants.get("depth", opened) if definition.family else opened
    if opened > bound:
        raise InputError(f"{definition.name}: more than {bound} open calls")
    values = {p.name: each for p, each in zip(definition.parameters, given)}
    run = _Run(definition, frame, attributes, values, opened)
    run.block(definition.statements, True)
    missing = [name for name in definition.results if name not in run.values]
    if missing:
        raise NotCovered(f"'{missing[0]}' is never assigned")
    return {name: run.values[name] for name in definition.results}


@dataclass(eq=False)
class _Run:
    definition: Definition
    frame: Frame
    attributes: Mapping[str, Any]
    values: Values
    opened: int

    def block(self, block: Sequence[Item], last: bool) -> None:
        """Run a block; `last`: the definition ends after it."""
        waiting: list[Item] = []
        for number, item in enumerate(block):
            if not any(_decides(each, self.definition) for each in items((item,))):
                waiting.append(item)
                continue
            self.plain(waiting)
            waiting = []
            self.item(item, last and number == len(block) - 1)
        self.plain(waiting)

    def item(self, item: Item, last: bool) -> None:
        if isinstance(item, Invoke):
            self.invoke(item, last)
        elif isinstance(item, BranchBlock):
            self.block(item.then if self.holds(item.condition) else item.otherwise, last)
        elif isinstance(item, WhileBlock):
            count = 0
            while self.holds(item.condition):
                self.block(item.body, False)
                count += 1
                if count > _MOST_ITERATIONS:
                    raise NotCovered(f"a loop with more than {_MOST_ITERATIONS} iterations")
        else:
            raise NotCovered("calls that data decides inside a loop over a range")

    # ---- statements between calls --------------------------------------------------------------

    def plain(self, statements: Sequence[Item]) -> None:
        """Run statements without such calls."""
        if not statements:
            return
        made, given = self._definition(statements, list(dict.fromkeys(targets(tuple(statements)))))
        kinds = [(each.kind, each.shape) for each in given]
        frame = surveyed(framed(made, kinds, self.attributes))
        stored = {p.name: _copy(each) for p, each in zip(made.parameters, given)}
        tensors = executed(frame, stored)
        self.values.update({name: tensors[name] for name in made.results})

    def _definition(
        self, statements: Sequence[Item], results: Sequence[str]
    ) -> tuple[Definition, list[Stored]]:
        """Statements as a definition, and its arguments."""
        used = {name for item in items(tuple(statements)) for name in _names(item)}
        declared = {each.name: each for each in self.definition.parameters}
        parameters, given = [], []
        for name, value in self.values.items():
            if name not in used and name not in declared:
                continue
            axes = tuple(Name(f"{name}.{axis}") for axis in range(len(value.shape)))
            parameters.append(declared.get(name) or Parameter(name, value.kind, axes))
            given.append(value)
        made = replace(
            self.definition, parameters=tuple(parameters), results=tuple(results),
            statements=tuple(statements), family=(),
        )  # fmt: skip
        return made, given

    def number(self, term: Term, kind: str) -> Stored:
        """The value of an expression without indices; `kind` is its type, '' for its own."""
        if isinstance(term, Name) and term.name in self.values:
            held = self.values[term.name]
            return _copy(held) if not kind else _converted(held, kind)
        statement = Assignment("value.", (), "", False, term)
        made, given = self._definition([statement], ["value."])
        frame = surveyed(framed(made, [(g.kind, g.shape) for g in given], self.attributes))
        stored = {p.name: _copy(each) for p, each in zip(made.parameters, given)}
        found = executed(frame, stored)["value."]
        return found if not kind else _converted(found, kind)

    def holds(self, condition: Term) -> bool:
        return bool(self.number(condition, "").data[0])

    # ---- calls -----------------------------------------------------------------------------------

    def invoke(self, item: Invoke, last: bool) -> None:
        callee = _callee(item, self.definition)
        assert callee is not None
        if item.rows:
            self.for_rows(item, callee)
            return
        given = [
            self.argument(term, parameter)
            for term, parameter in zip(item.call.arguments, callee.parameters)
        ]
        own = callee.name in {each.name for each in self.definition.family}
        tail = last and callee.name == self.definition.name
        tail = tail and item.targets == self.definition.results
        opened = self.opened + (not tail) if own else 1
        self.assign(item, callee, run_decided(callee, given, self.settings(item, callee), opened))

    def argument(self, term: Term, parameter: Parameter) -> Stored:
        is_tensor = isinstance(term, Name) and term.name in self.values
        return self.number(term, "" if is_tensor else TYPE_NAMES.get(parameter.type, ""))

    def settings(self, item: Invoke, callee: Definition) -> Mapping[str, Any]:
        """The attributes of a call; a recursive one gets those of its caller."""
        own = {each.name for each in self.definition.family}
        inherited = {a.name for a in callee.attributes} if callee.name in own else set()
        found = {name: held for name, held in self.attributes.items() if name in inherited}
        found.update(
            {each.name: setting(each.value, self.frame, {}) for each in item.call.settings}
        )
        return found

    def assign(self, item: Invoke, callee: Definition, results: Values) -> None:
        for target, name in zip(item.targets, callee.results):
            self.values[target] = results[name]

    def for_rows(self, item: Invoke, callee: Definition) -> None:
        """Call for each row, and put the results of all rows together."""
        rowwise = [isinstance(term, CallTerm) and term.arguments == (Name(item.rows),)
                   and term.name in self.values for term in item.call.arguments]  # fmt: skip
        given: list[Stored] = []
        for term, parameter, own in zip(item.call.arguments, callee.parameters, rowwise):
            if own:
                assert isinstance(term, CallTerm)
                given.append(self.values[term.name])
            else:
                given.append(self.argument(term, parameter))
        counts = {each.shape[0] for each, own in zip(given, rowwise) if own}
        if len(counts) > 1:
            raise InputError(f"{callee.name}: rows of different numbers")
        found = [
            run_decided(callee, [_row(each, n) if own else each
                                 for each, own in zip(given, rowwise)],
                        self.settings(item, callee))
            for n in range(counts.pop())
        ]  # fmt: skip
        if not found:
            raise NotCovered("calls for no rows")
        for target, name in zip(item.targets, callee.results):
            rows = [each[name] for each in found]
            data = [value for each in rows for value in each.data]
            self.values[target] = Stored(rows[0].kind, (len(rows), *rows[0].shape), data)


def _names(item: Item) -> set[str]:
    terms: list[Term] = []
    if isinstance(item, Assignment):
        terms = [*item.indices, item.value]
        for clause in item.where:
            terms += getattr(clause, "indices", None) or (clause.low, clause.high)  # type: ignore[union-attr]
    elif isinstance(item, Invoke):
        terms = list(item.call.arguments)
    elif isinstance(item, LoopBlock):
        terms = [item.start, item.stop, item.step]
    elif isinstance(item, (BranchBlock, WhileBlock)):
        terms = [item.condition]
    found = {*targets((item,))}
    for clause in getattr(item, "where", ()):
        found.add(getattr(clause, "tensor", ""))
    for each in (inner for term in terms for inner in walk(term)):
        found.add(getattr(each, "name", "") or getattr(each, "tensor", ""))
    return found


def _copy(value: Stored) -> Stored:
    return Stored(value.kind, value.shape, list(value.data))


def _converted(value: Stored, kind: str) -> Stored:
    convert = conversion(value.kind, kind)
    return Stored(kind, value.shape, [convert(each) for each in value.data])


def _row(value: Stored, number: int) -> Stored:
    size = len(value.data) // value.shape[0]
    data = value.data[number * size : (number + 1) * size]
    return Stored(value.kind, value.shape[1:], data)

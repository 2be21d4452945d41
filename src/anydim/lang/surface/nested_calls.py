"""Calls inside expressions, rewritten: each becomes a statement before its own.

    r = ev(a) + ev(b)      ev_1 = ev(a)    ev_2 = ev(b)    r = ev_1 + ev_2
    y(b) = 2 * g(x(b))     g_1(b) = g(x(b))                y(b) = 2 * g_1(b)

Calls are evaluated left to right, arguments before their call. A call behind `?:`, `&&` or `||` is
evaluated only where it is needed: these become branches. Calls with structures end always, and are
not allowed in branches: they are evaluated before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import field, replace

from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.hints import OVER_INDICES
from anydim.lang.surface.printer import print_term
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    CallTerm,
    Convert,
    Definition,
    Exists,
    Flat,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Number,
    Operation,
    Range,
    Spread,
    Term,
    WhileBlock,
    children,
    walk,
)
from anydim.lang.tree.composed import COMPOSED

DEEPEST = 32  # branches that one expression becomes
_BUILT_IN = (FUNCTIONS, FUNCTION_ALIASES, COMPOSED, TYPE_NAMES)
_WORD = re.compile(r"[A-Za-z_]\w*")
_LONGEST_SHOWN = 40


@dataclass(frozen=True)
class Callables:
    """What an expression of a definition may call.

    `names` are definitions, operators of the library and constructors that no name of the
    definition hides; `rows` the definitions among them, `eager` those with structures, and
    `constructors` the constructors. `own` are the names of the definition.
    """

    names: Collection[str]
    rows: Collection[str]
    eager: Collection[str]
    constructors: Collection[str]
    own: Collection[str]


def without_nested(definition: Definition, callables: Callables) -> Definition:
    """A definition whose calls are statements; raises LanguageError for one that cannot be."""
    rewriting = _Rewriting(definition, callables, set(callables.own))
    statements = rewriting.block(definition.statements)
    if statements == definition.statements:
        return definition
    return replace(definition, statements=statements, nested=tuple(rewriting.shown.items()))


@dataclass
class _Rewriting:
    """`known` are the names that are no indices, `shown` the calls by the names of their results.

    `made` are the results of a statement and their blocks, by position: a term that `where` names
    is evaluated once.
    """

    definition: Definition
    callables: Callables
    known: set[str]
    shown: dict[str, str] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)  # variables of the loops around
    made: dict[tuple[int, Term], tuple[list[Item], Term]] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    ranged: bool = False  # whether the statement has a `where`
    indexed: bool = False  # whether it has indices
    position: int = 0  # of the statement: positions grow from statement to statement

    # ---- statements ----------------------------------------------------------------------------

    def block(self, block: tuple[Item, ...]) -> tuple[Item, ...]:
        found: list[Item] = []
        for item in block:
            self.made = {}
            self.ranged, self.indexed, self.position = False, False, item.position
            self._item(item, found)
        return tuple(found)

    def _item(self, item: Item, found: list[Item]) -> None:
        if isinstance(item, Assignment):
            self._assignment(item, found)
        elif isinstance(item, Invoke):
            found.append(replace(item, call=self._arguments(item.call, _Place((found,)))))
        elif isinstance(item, LoopBlock):
            place = _Place((found,))
            ends = item.start, item.stop, item.step
            start, stop, step = (self.term(each, place) for each in ends)
            self.loops.add(item.variable)
            body = self.block(item.body)
            self.loops.discard(item.variable)
            found.append(replace(item, start=start, stop=stop, step=step, body=body))
        elif isinstance(item, BranchBlock):
            condition = self.term(item.condition, _Place((found,)))
            then, otherwise = self.block(item.then), self.block(item.otherwise)
            found.append(replace(item, condition=condition, then=then, otherwise=otherwise))
        elif isinstance(item, WhileBlock):
            before: list[Item] = []
            condition = self.term(item.condition, _Place((before,)))
            body = self.block(item.body)
            found += [*before, replace(item, condition=condition, body=(*body, *before))]
        elif isinstance(item, MatchBlock):
            cases = (replace(case, body=self.block(case.body)) for case in item.cases)
            found.append(replace(item, cases=tuple(cases)))

    def _assignment(self, item: Assignment, found: list[Item]) -> None:
        place = _Place((found,))
        plain = not (item.indices or item.combine or item.where)
        self.ranged, self.indexed = bool(item.where), bool(item.indices or item.combine)
        if plain and self._chooses(item.value):
            self._choice(item, place)
        elif self._is_call_statement(item, plain):
            found.append(replace(item, value=self._arguments(item.value, place)))
        else:
            indices = tuple(self.term(each, place) for each in item.indices)
            value = self.term(item.value, place)
            where = tuple(self._clause(each, place) for each in item.where)
            found.append(replace(item, indices=indices, value=value, where=where))

    def _is_call_statement(self, item: Assignment, plain: bool) -> bool:
        """Whether the value is a call, and the results of the call are what is assigned."""
        value = item.value
        if not isinstance(value, CallTerm) or value.name not in self.callables.names:
            return False
        if plain:
            return True
        own = item.indices[0] if len(item.indices) == 1 else None
        index = isinstance(own, Name) and own.name not in self.loops
        return index and value.name in self.callables.rows and not (item.combine or item.where)

    def _choice(self, item: Assignment, place: _Place) -> None:
        """`y = c ? f(a) : g(b)` as a branch of two statements."""
        assert isinstance(item.value, Operation)
        condition, *values = item.value.arguments
        self._same_for_all(item.value, place)
        condition = self.term(condition, place)
        blocks = []
        for value in values:
            block: list[Item] = []
            inner, within = replace(item, value=value), place.inside(block)
            if self._chooses(value):
                self._choice(inner, within)
            elif self.calls(value) and not self._is_eager(value):
                block.append(replace(inner, value=self._arguments(value, within)))
            else:
                block.append(replace(inner, value=self.term(value, within)))
            blocks.append(tuple(block))
        then, otherwise = blocks
        place.block.append(BranchBlock(condition, then, otherwise, item.position))

    def _clause(self, clause: Range | Exists, place: _Place) -> Range | Exists:
        if isinstance(clause, Range):
            low, high = self.term(clause.low, place), self.term(clause.high, place)
            return replace(clause, low=low, high=high)
        return replace(clause, indices=tuple(self.term(each, place) for each in clause.indices))

    # ---- expressions ---------------------------------------------------------------------------

    def calls(self, term: Term) -> bool:
        """Whether a term is a call, or makes a node, inside an expression.

        A definition with the name of a function of the language is called without indices.
        """
        if not isinstance(term, CallTerm) or term.name not in self.callables.names:
            return False
        if not any(term.name in names for names in _BUILT_IN):
            return True
        own = term.name in self.callables.rows and term.name != self.definition.name
        return own and not any(self._indices(term))

    def term(self, term: Term, place: _Place) -> Term:
        """A term without calls; their statements are added to the block of a place."""
        if not any(map(self.calls, walk(term))):
            return term
        if isinstance(term, CallTerm) and self.calls(term):
            return self._result(term, place)
        if self._is_lazy(term):
            return self._choose_by_branch(term, place)
        if isinstance(term, (CallTerm, Flat)) and term.default is not None:
            self._refuse(self._late(term.default), "'else'")
        return _rebuilt(term, lambda inner: self.term(inner, place))

    def _result(self, call: CallTerm, place: _Place) -> Term:
        """The name of the result of a call, whose statement is added."""
        if self._is_eager(call):
            place = place.outside()
        block, known = self.made.get((call.position, call), (None, call))
        if any(block is each for each in place.blocks):
            return known
        inner = self._arguments(call, place)
        index = self._row(inner)
        indices = (Name(index, call.position),) if index else ()
        name = self._new_name(call)
        place.block.append(Assignment(name, indices, "", False, inner, position=self.position))
        read = CallTerm(name, indices, position=call.position)
        result = read if index else Name(name, call.position)
        self.made[call.position, call] = place.block, result
        return result

    def _arguments(self, call: Term, place: _Place) -> CallTerm:
        """A call whose arguments are no calls."""
        assert isinstance(call, CallTerm)
        for setting in call.settings:
            if any(map(self.calls, walk(setting.value))):
                raise self.definition.error(
                    setting.value.position, f"attribute '{setting.name}' is known only at run time",
                    "attributes are constants and sizes; pass tensors and scalars as arguments",
                )  # fmt: skip
        arguments = (self._argument(each, place) for each in call.arguments)
        return replace(call, arguments=tuple(arguments))

    def _argument(self, term: Term, place: _Place) -> Term:
        if isinstance(term, Name) and term.name in self.callables.constructors:
            return self._result(CallTerm(term.name, (), position=term.position), place)
        return self.term(term, place)

    def _row(self, call: CallTerm) -> str:
        """The index of a call for each row; '' for a call whose arguments have no indices."""
        mixed = [each for each in call.arguments if not isinstance(each, Name)]
        found = [index.name for each in mixed for index in self._indices(each)]
        if not found:
            return ""  # `check` refuses an argument that is an index
        index, where = found[0], call.position
        if call.name not in self.callables.rows:
            problem = f"'{call.name}' takes whole tensors and numbers, without the index '{index}'"
            hint = f"assign its result first: y = {call.name}(...)"
            raise self.definition.error(where, problem, OVER_INDICES.get(call.name, hint))
        row = (Name(index),)
        if any(any(self._indices(each)) and not _is_row(each, row) for each in mixed):
            problem = (
                f"an argument of '{call.name}' has the index '{index}', and is no row x({index})"
            )
            hint = f"assign it first: t({index}) = ..., and pass t({index})"
            raise self.definition.error(where, problem, hint)
        if self.ranged:
            problem = f"'{call.name}' is called for each '{index}', in a statement with 'where'"
            hint = f"assign its result first: y({index}) = {call.name}(...)"
            raise self.definition.error(where, problem, hint)
        return index

    def _new_name(self, call: CallTerm) -> str:
        """A new name for the result of a call."""
        self.words = self.words or {*_WORD.findall(self.definition.text), *self.callables.own}
        number = 1
        while f"{call.name}_{number}" in self.words:
            number += 1
        name = f"{call.name}_{number}"
        text = print_term(call)
        self.words.add(name)
        self.known.add(name)
        text = _WORD.sub(lambda found: self.shown.get(found[0], found[0]), text)
        self.shown[name] = text if len(text) <= _LONGEST_SHOWN else f"{call.name}(...)"
        return name

    # ---- calls that are evaluated only where they are needed -----------------------------------

    def _is_eager(self, call: Term) -> bool:
        return isinstance(call, CallTerm) and call.name in self.callables.eager

    def _late(self, term: Term) -> Term | None:
        """The first call of a term that is evaluated only where it is needed."""
        if self.calls(term):
            return None if self._is_eager(term) else term
        found = (self._late(inner) for inner in children(term))
        return next((each for each in found if each is not None), None)

    def _is_lazy(self, term: Term) -> bool:
        """Whether it may leave a call out: `?:`, `&&` or `||` with a call behind."""
        if not isinstance(term, Operation) or term.function not in _LAZY:
            return False
        return any(self._late(each) is not None for each in term.arguments[1:])

    def _chooses(self, term: Term) -> bool:
        return isinstance(term, Operation) and term.function == "select" and self._is_lazy(term)

    def _choose_by_branch(self, term: Term, place: _Place) -> Term:
        """The name of a value that a branch assigns."""
        assert isinstance(term, Operation)
        self._same_for_all(term, place)
        first, *rest = term.arguments
        name = self._new_name(CallTerm("chosen", (), position=term.position))
        self.shown[name] = print_term(term)
        condition = self.term(first, place)
        if term.function == "select":
            blocks = [self._assign_value(name, each, place) for each in rest]
        else:
            known = Number(term.function == "or", term.position)
            blocks = [self._assign_value(name, each, place, term) for each in rest]
            blocks.append((Assignment(name, (), "", False, known, position=self.position),))
        then, otherwise = reversed(blocks) if term.function == "or" else blocks
        place.block.append(BranchBlock(condition, then, otherwise, self.position))
        return Name(name, term.position)

    def _assign_value(
        self, name: str, value: Term, place: _Place, within: Operation | None = None
    ) -> tuple[Item, ...]:
        """The block that assigns a value, as a truth value within `&&` or `||`."""
        block: list[Item] = []
        made = self.term(value, place.inside(block))
        if within is not None:
            neutral = Number(within.function == "and", within.position)
            made = replace(within, arguments=(neutral, made))
        block.append(Assignment(name, (), "", False, made, position=self.position))
        return tuple(block)

    def _same_for_all(self, term: Operation, place: _Place) -> None:
        """Refuse a choice that has indices, or that is nested too deeply."""
        found = (each for each in map(self._late, term.arguments[1:]) if each is not None)
        late = next(found, None)
        if len(place.blocks) > DEEPEST:
            raise self.definition.error(term.position, f"choices nested more than {DEEPEST} deep")
        if self.indexed and any(self._indices(term)):
            sign = {"select": "'?:'", "and": "'&&'", "or": "'||'"}[term.function]
            self._refuse(late, sign)

    def _refuse(self, call: Term | None, sign: str) -> None:
        """Raise the error of a call that some elements need, and others do not."""
        if call is not None:
            assert isinstance(call, CallTerm)
            raise self.definition.error(
                call.position, f"'{call.name}' is called behind {sign} for some elements only",
                f"assign its result first, where it is evaluated for all: y = {call.name}(...)",
            )  # fmt: skip

    def _indices(self, term: Term) -> Iterator[Name | Spread]:
        """The indices in a term, and its ellipses."""
        names = {*self.known, *self.loops, *self.callables.constructors}
        for each in walk(term):
            if isinstance(each, Spread) or (isinstance(each, Name) and each.name not in names):
                yield each


_LAZY = ("select", "and", "or")


@dataclass(frozen=True)
class _Place:
    """Where statements go: the last block; the first one for calls that no branch may contain."""

    blocks: tuple[list[Item], ...]

    @property
    def block(self) -> list[Item]:
        return self.blocks[-1]

    def inside(self, block: list[Item]) -> _Place:
        return _Place((*self.blocks, block))

    def outside(self) -> _Place:
        return _Place(self.blocks[:1])


def _is_row(term: Term, row: tuple[Name]) -> bool:
    return isinstance(term, CallTerm) and term.arguments == row and term.default is None


def _rebuilt(term: Term, change: Callable[[Term], Term]) -> Term:
    """A term with changed subterms."""
    if isinstance(term, (CallTerm, Flat)):
        inner = tuple(map(change, children(term)))
        default = None if term.default is None else inner[-1]
        inner = inner if default is None else inner[:-1]
        if isinstance(term, Flat):
            return replace(term, offset=inner[0], default=default)
        return replace(term, arguments=inner, default=default)
    if isinstance(term, Operation):
        return replace(term, arguments=tuple(map(change, term.arguments)))
    return replace(term, argument=change(term.argument)) if isinstance(term, Convert) else term

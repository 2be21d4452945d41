"""Parses expressions, by recursive descent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.hints import BEYOND, reserved_hint
from anydim.lang.surface.scanner import NAME, NUMBER, OPERATOR, Scanner, Word
from anydim.lang.surface.syntax import (
    PRECEDENCE,
    RESERVED,
    CallTerm,
    Convert,
    Count,
    Dimension,
    Flat,
    Name,
    Number,
    Operation,
    Problem,
    Setting,
    Spread,
    Term,
    depth,
)

DEEPEST = 100
CONSTANTS = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}
COMBINES = {"": "", "+": "add", "*": "mul", "min": "min", "max": "max"}
OPERATORS = {row.operator: row.name for row in FUNCTIONS.values() if row.arity == 2}
PREFIXES = {row.operator: row.name for row in FUNCTIONS.values() if row.arity == 1}
_match_operator = re.compile(r"\|\||&&|==|!=|<=|>=|<<|>>|\/\/|[-+*\/%<>&|^]").match


def group_operators(operands: list[Term], operators: list[Word]) -> Term:
    """Group a flat chain `a + b * c` by precedence, left-associative."""
    done, waiting = [operands[0]], list[Word]()

    def apply() -> None:
        right, left, token = done.pop(), done.pop(), waiting.pop()
        done.append(Operation(OPERATORS[str(token)], (left, right), token.position))

    for token, operand in zip(operators, operands[1:]):
        while waiting and PRECEDENCE[waiting[-1]] >= PRECEDENCE[token]:
            apply()
        waiting.append(token)
        done.append(operand)
    while waiting:
        apply()
    return done[0]


def check_depth(*terms: Term) -> None:
    """Raise Problem for a deep term."""
    for term in terms:
        if depth(term) > DEEPEST:
            raise Problem(term.position, f"expression nested more than {DEEPEST} deep")


def check_not_reserved(word: Word) -> None:
    """Raise Problem for a reserved word."""
    if word in RESERVED:
        problem = f"'{word}' is a reserved word, not a name"
        raise Problem(word.position, problem, reserved_hint(word))


def combination(operator: Word) -> tuple[str, bool]:
    """How an assignment combines values, and whether it starts anew: `+=!` is ("add", True)."""
    return COMBINES[operator.rstrip("!").removesuffix("=")], operator.endswith("!")


def constant_or_name(word: Word) -> Term:
    """The constant of this name, or a name; raises Problem for another reserved word."""
    if word in CONSTANTS:
        return Number(CONSTANTS[word], word.position)
    check_not_reserved(word)
    return Name(str(word), word.position)


def number(word: Word) -> Number:
    """The number that a token writes; raises Problem for a large or long one."""
    if len(word) > 40:
        raise Problem(word.position, "a number has more than 40 digits")
    if not word.isdigit():
        return Number(float(word), word.position)
    if int(word) >= 2**64:
        raise Problem(word.position, "an integer exceeds 64 bits", BEYOND)
    return Number(int(word), word.position)


def dimension(word: Word) -> Dimension:
    """The size `x.0` that a token writes."""
    tensor, axis = word.split(".")
    if len(axis) > 3:
        raise Problem(word.position, "a dimension exceeds 999")
    return Dimension(tensor, int(axis), word.position)


LEAVES: dict[str, Callable[[Word], Any]] = {
    "name": constant_or_name, "number": number, "dimension": dimension,
    "spread": lambda word: Spread(word[3:], word.position),
}  # fmt: skip


class TermReader(Scanner):
    """Reads terms; a subclass reads the texts that contain them."""

    readable: tuple[str, ...] = ("name",)  # the tokens that name what is read or called
    leaves: Mapping[str, Callable[[Word], Any]] = LEAVES  # what other tokens alone are

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.level = 0  # of terms within each other

    def enter(self) -> None:
        """Enter a term in a term, or raise Problem: deep ones would overflow Python's stack."""
        self.level += 1
        if self.level > DEEPEST:
            raise Problem(self.at, f"expression nested more than {DEEPEST} deep")

    def terms(self, *ends: str) -> tuple[Term, ...]:
        """Terms up to one of these marks, which is not read."""
        found: list[Term] = []
        if not self.starts(*ends):
            found.append(self.term())
            while self.mark(","):
                found.append(self.term())
        return tuple(found)

    def arguments(self) -> tuple[Term, ...]:
        """Terms in parentheses, if there are any."""
        if not self.mark("("):
            return ()
        found = self.terms(")")
        self.need(")")
        return found

    def term(self) -> Term:
        """An expression: `condition ? a : b`, or a chain of operators."""
        condition = self.chain()
        if not self.mark("?"):
            return condition
        self.enter()
        then = self.term()
        self.need(":")
        otherwise = self.term()
        self.level -= 1
        return Operation("select", (condition, then, otherwise), condition.position)

    def chain(self) -> Term:
        """Operands with infix operators between them."""
        operands, operators = [self._operand()], []
        while found := _match_operator(self.text, self.at):
            operators.append(self.take(found.end()))
            operands.append(self._operand())
        self.missed.append(OPERATOR)
        return group_operators(operands, operators) if operators else operands[0]

    def _operand(self) -> Term:
        found = self.match_atom(self.text, self.at)
        if found is None:
            self.fail(NAME, NUMBER, "...name", "(")
        kind, word = found.lastgroup or "", self.take(found.end())
        if kind in self.readable and self.starts("(", "["):
            return self._read(word)
        leaf = self.leaves.get(kind)
        if leaf is not None:
            return leaf(word)
        self.enter()
        made = self._compound(kind, word)
        self.level -= 1
        return made

    def _compound(self, kind: str, word: Word) -> Term:
        """The rest of a term that starts with an opening or prefix token."""
        if kind == "prefix":
            return Operation(PREFIXES[str(word)], (self._operand(),), word.position)
        if kind == "count":
            return Count(self._ellipsis(), word.position)
        inner = self.term()
        self.need(")")
        if kind == "inside":
            return inner
        name = word[word.index("<") + 1 : word.index(">")].strip()
        return Convert(name, inner, word.position)

    def _ellipsis(self) -> str:
        found = self.match_atom(self.text, self.at)
        if found is None or found.lastgroup != "spread":
            self.fail("...name")
        name = self.take(found.end())[3:]
        self.need(")")
        return name

    def _read(self, name: Word) -> CallTerm | Flat:
        """A call, or a read, perhaps with its default."""
        self.enter()
        read: CallTerm | Flat
        if self.mark("["):
            read = Flat(str(name), self.term(), None, name.position)
            self.need("]")
        else:
            self.need("(")
            arguments = self.terms(")", ";")
            settings = self.items(self._setting) if self.mark(";") else ()
            self.need(")")
            read = self.call(name, arguments, settings)
        if self.keyword("else"):
            read = replace(read, default=self._operand())
        self.level -= 1
        return read

    def _setting(self) -> Setting:
        name = self.name()
        self.need("=")
        value = self.term()
        check_depth(value)
        return Setting(str(name), value, name.position)

    def call(
        self, name: Word, arguments: tuple[Term, ...], settings: tuple[Setting, ...]
    ) -> CallTerm:
        """The tree of a call; raises Problem for a reserved word."""
        if name in RESERVED:
            problem = f"'{name}' is a reserved word, not a function"
            raise Problem(name.position, problem, reserved_hint(name))
        return CallTerm(str(name), arguments, None, settings, name.position)

"""Tokens of the language, each matched where it is expected, and the syntax errors of texts.

A scanner remembers what it looked for at its position and did not find. This is what the error
says was expected there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from anydim.lang.surface.hints import mistake
from anydim.lang.surface.syntax import Problem

NAME, NUMBER, ASSIGN, OPERATOR = "a name", "a number", "an assignment", "an operator"
END = "the end"
_ARTICLES = ("a ", "an ", "the ")  # start what an error does not quote

IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
ATOMS = (
    r"(?P<number>([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?)"
    r"|(?P<count>size\s*\((?=\s*\.\.\.))"
    rf"|(?P<convert>cast\s*<\s*{IDENTIFIER}\s*>\s*\()"
    rf"|(?P<dimension>{IDENTIFIER}\.[0-9]+)"
    rf"|(?P<name>{IDENTIFIER})"
    rf"|(?P<spread>\.\.\.{IDENTIFIER})"
    r"|(?P<prefix>[-!~])"
    r"|(?P<inside>\()"
)
Match = Callable[[str, int], "re.Match[str] | None"]
Value = TypeVar("Value")

_match_space = re.compile(r"(?:\s+|#[^\n]*)*").match
_match_name = re.compile(IDENTIFIER).match
_match_assign = re.compile(r"(\+|\*|min|max)?=!?").match
_match_end = re.compile(r"[A-Za-z_),;:{}]").match  # what follows a term
_match_shown = re.compile(r"->|[-+*/<>=!&|]{1,2}").match  # operators that an error shows whole


class Word(str):
    """The text of a token, with its 0-based position."""

    __slots__ = ("position",)
    position: int


class Scanner:
    """A text, and the position of the next token."""

    match_atom: Match = re.compile(ATOMS).match

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.missed: list[str] = []  # what is not at this position
        self._move(0)

    def _move(self, end: int) -> None:
        space = _match_space(self.text, end)
        assert space is not None
        self.at = space.end()
        self.missed.clear()

    def take(self, end: int) -> Word:
        """Read the token from here to `end`."""
        word = Word(self.text[self.at : end])
        word.position = self.at
        self._move(end)
        return word

    def token(self, match: Match, kind: str) -> Word:
        """Read a token; raises Problem if there is none of this kind."""
        found = match(self.text, self.at)
        if found is None:
            self.fail(kind)
        return self.take(found.end())

    def name(self) -> Word:
        """Read a name; a word of the language is one where only a name may stand."""
        return self.token(_match_name, NAME)

    def assignment(self) -> Word:
        """Read `=`, `+=!` and the like."""
        return self.token(_match_assign, ASSIGN)

    def starts(self, *marks: str) -> bool:
        """Whether one of these marks is next; reads nothing."""
        if self.text.startswith(marks, self.at):
            return True
        self.missed += marks
        return False

    def mark(self, mark: str) -> bool:
        """Whether this mark is next; reads it."""
        if not self.text.startswith(mark, self.at):
            self.missed.append(mark)
            return False
        self._move(self.at + len(mark))
        return True

    def need(self, mark: str) -> None:
        """Read this mark; raises Problem if it is not next."""
        if not self.mark(mark):
            self.fail()

    def keyword(self, word: str) -> bool:
        """Whether this word is next; reads it."""
        if self.text.startswith(word, self.at):
            found = _match_name(self.text, self.at)
            if found is not None and found[0] == word:
                self._move(found.end())
                return True
        self.missed.append(word)
        return False

    def starts_with_word(self, *words: str) -> bool:
        """Whether one of these words is next; reads nothing."""
        found = _match_name(self.text, self.at)
        return found is not None and found[0] in words

    def need_keyword(self, word: str) -> None:
        """Read this word; raises Problem if it is not next."""
        if not self.keyword(word):
            self.fail()

    def items(self, read: Callable[[], Value]) -> tuple[Value, ...]:
        """Read one or more, separated by commas."""
        found = [read()]
        while self.mark(","):
            found.append(read())
        return tuple(found)

    def fail(self, *expected: str) -> NoReturn:
        """Raise a Problem: neither of these is here, nor what was looked for before."""
        looked_for = {*self.missed, *expected}
        ended = _match_end(self.text, self.at) is not None
        words = _describe(looked_for, ended)
        if self.at >= len(self.text):
            position = len(self.text.rstrip())
            raise Problem(position, f"the text ends early; expected {words}")
        hint = mistake(self.text, self.at, looked_for)
        raise Problem(self.at, f"expected {words}, found '{self._next()}'", hint)

    def _next(self) -> str:
        """The operator, other token or character at this position, as errors show it."""
        text, at = self.text, self.at
        found = _match_shown(text, at) or self.match_atom(text, at)
        return found[0] if found else repr(text[at])[1:-1]


_BETWEEN = {"}", NAME, ";", "("}  # between constructors of a type or cases of a match


def _describe(expected: set[str], ended: bool) -> str:
    """What was expected, in words: the larger whole if it could start there.

    An operator is left out if what follows shows that the term has `ended`.
    """
    if {NAME, NUMBER} <= expected:
        return "an expression"
    if "}" in expected and not expected <= _BETWEEN:
        return "a statement or '}'"
    if OPERATOR in expected:
        expected = expected - {"?", "else", "where", "(", "["}
        expected = (expected - {OPERATOR} if ended else expected) or {OPERATOR}
    if ASSIGN in expected and "(" not in expected:
        expected = expected - {","}  # several results of a call for each row are rare
    words = sorted(word if word.startswith(_ARTICLES) else f"'{word}'" for word in expected)
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

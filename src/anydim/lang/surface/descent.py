"""A parser of definitions by recursive descent, which needs no tables and no lark.

It builds what the parser of `grammar.lark` builds, with the same callbacks (`rules.py`). It gives
up at long or deep texts, at words of the language used as names, and at whatever it does not
expect: the other parser then reads the text, and reports its errors. A token is matched where it
is expected, as in a contextual lexer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from anydim.lang.surface.rules import CONSTANTS, RULES
from anydim.lang.surface.syntax import RESERVED, Definition, Problem, StructureType

_LONGEST = 50_000  # characters; the other parser reads longer texts
_DEEPEST = 60  # terms and blocks within each other
_WORDS = RESERVED | {"match", "type"}

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SPACE = r"(?:\s+|#[^\n]*)*"
_match_space = re.compile(_SPACE).match
_match_name = re.compile(_NAME).match
_match_assign = re.compile(r"(\+|\*|min|max)?=!?").match
_match_operator = re.compile(r"\|\||&&|==|!=|<=|>=|<<|>>|\/\/|[-+*\/%<>&|^]").match
_match_atom = re.compile(
    r"(?P<number>([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?)"
    r"|(?P<count>size\s*\((?=\s*\.\.\.))"
    rf"|(?P<convert>cast\s*<\s*{_NAME}\s*>\s*\()"
    rf"|(?P<dimension>{_NAME}\.[0-9]+)"
    rf"|(?P<name>{_NAME})"
    rf"|(?P<spread>\.\.\.{_NAME})"
    r"|(?P<prefix>[-!~])"
    r"|(?P<inside>\()"
).match


class _OtherText(Exception):
    """The text is not one of those that this parser reads."""


class Word(str):
    """A token: its text and its 0-based position."""

    __slots__ = ("start_pos",)
    start_pos: int


def read_definitions(text: str) -> tuple[list[StructureType], list[Definition]] | None:
    """The definitions of a text as they are written; None for a text of another form, or an
    invalid one."""
    if len(text) > _LONGEST:
        return None
    try:
        return _Reader(text).start()
    except (_OtherText, Problem, RecursionError):
        return None


class _Reader:
    """The text, and the position of the next token."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._skip()

    def start(self) -> tuple[list[StructureType], list[Definition]]:
        found: list[Any] = []
        while self._at < len(self._text):
            word = self._any_name()
            if word not in ("def", "type"):
                raise _OtherText
            found.append(self._definition() if word == "def" else self._structure(word))
        made: tuple[list[StructureType], list[Definition]] = RULES["start"](None, *found)
        return made

    # ---- tokens --------------------------------------------------------------------------------

    def _skip(self) -> None:
        space = _match_space(self._text, self._at)
        assert space is not None
        self._at = space.end()

    def _word(self, end: int) -> Word:
        word = Word(self._text[self._at : end])
        word.start_pos = self._at
        self._at = end
        self._skip()
        return word

    def _any_name(self) -> Word:
        found = _match_name(self._text, self._at)
        if found is None:
            raise _OtherText
        return self._word(found.end())

    def _name(self) -> Word:
        word = self._any_name()
        if word in _WORDS:
            raise _OtherText
        return word

    def _keyword(self, word: str) -> bool:
        """Whether a word of the language is next; it is then read."""
        found = _match_name(self._text, self._at)
        if found is None or found[0] != word:
            return False
        self._word(found.end())
        return True

    def _mark(self, mark: str) -> bool:
        """Whether this mark is next; it is then read."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        self._skip()
        return True

    def _need(self, mark: str) -> None:
        if not self._mark(mark):
            raise _OtherText

    def _assign(self) -> Word:
        found = _match_assign(self._text, self._at)
        if found is None:
            raise _OtherText
        return self._word(found.end())

    def _listed(self, read: Callable[[], Any]) -> tuple[Any, ...]:
        """One or more, separated by commas."""
        found = [read()]
        while self._mark(","):
            found.append(read())
        return tuple(found)

    def _inside(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _OtherText

    # ---- definitions ---------------------------------------------------------------------------

    def _definition(self) -> Any:
        name = self._any_name()
        self._need("(")
        parameters = self._parameters()
        attributes = self._listed(self._attribute) if self._mark(";") else None
        self._need(")")
        self._need("->")
        return RULES["definition"](
            None, name, parameters, attributes, self._results(), self._block()
        )

    def _parameters(self) -> tuple[Any, ...] | None:
        if self._text.startswith((")", ";"), self._at):
            return None
        return self._listed(self._parameter)

    def _parameter(self) -> Any:
        return RULES["parameter"](None, self._type(), self._name())

    def _type(self) -> Any:
        kind, arguments = self._name(), None
        if self._mark("<"):
            self._inside()
            arguments = self._listed(self._type)
            self._need(">")
            self._depth -= 1
        shape = self._terms(")") if self._mark("(") else None
        return RULES["type_name"](None, kind, arguments, shape)

    def _attribute(self) -> Any:
        kind, name = self._any_name(), self._name()
        default = self._term() if self._mark("=") else None
        return RULES["attribute"](None, kind, name, default)

    def _results(self) -> tuple[str, ...]:
        if not self._mark("("):
            return (str(self._name()),)
        names = [] if self._mark(")") else [str(self._name())]
        while names:
            if self._mark(")"):
                break
            self._need(",")
            names.append(str(self._name()))
        return tuple(names)

    # ---- structures ----------------------------------------------------------------------------

    def _structure(self, word: Word) -> Any:
        name, parameters = self._name(), None
        if self._mark("<"):
            parameters = self._listed(self._name)
            self._need(">")
        self._need("{")
        constructors = []
        while not self._mark("}"):
            constructors.append(self._constructor())
            self._mark(";")
        return RULES["structure"](None, word, name, parameters, *constructors)

    def _constructor(self) -> Any:
        name, fields = self._name(), None
        if self._mark("("):
            fields = self._parameters()
            self._need(")")
        return RULES["constructor"](None, name, fields)

    def _match(self, word: Word) -> Any:
        found = list(self._listed(self._name))
        self._inside()
        self._need("{")
        while not self._mark("}"):
            patterns = self._listed(self._pattern)
            found.append(RULES["case"](None, *patterns, self._block()))
            self._mark(";")
        self._depth -= 1
        return RULES["match"](None, word, *found)

    def _pattern(self) -> Any:
        name = self._name()
        if not self._mark("("):
            return RULES["pattern"](None, name)
        self._inside()
        inner = None
        if not self._mark(")"):
            inner = self._listed(self._pattern)
            self._need(")")
        self._depth -= 1
        return RULES["pattern"](None, name, inner)

    # ---- statements ----------------------------------------------------------------------------

    def _block(self) -> tuple[Any, ...]:
        self._inside()
        self._need("{")
        found = []
        while not self._mark("}"):
            found.append(self._statement())
            self._mark(";")
        self._depth -= 1
        return tuple(found)

    def _statement(self) -> Any:
        word = self._any_name()
        if word == "for":
            return self._loop(word)
        if word == "if":
            return self._branch(word)
        if word == "while":
            return RULES["while_"](None, word, self._term(), self._block())
        if word == "match" and _match_name(self._text, self._at):
            return self._match(word)
        if word in _WORDS:
            raise _OtherText
        targets = [self._target(word)]
        while self._mark(","):
            targets.append(self._target(self._name()))
        assign, value = self._assign(), self._term()
        if len(targets) > 1:
            return RULES["several"](None, *targets, assign, value)
        where = self._where() if self._keyword("where") else None
        return RULES["assignment"](None, targets[0], assign, value, where)

    def _target(self, name: Word) -> Any:
        return RULES["target"](None, name, self._terms(")") if self._mark("(") else None)

    def _loop(self, word: Word) -> Any:
        name, ends = self._name(), [None, None, None]
        if not self._keyword("in"):
            raise _OtherText
        ends[0] = self._chain()
        if self._mark(":"):
            ends[1] = self._chain()
            if self._mark(":"):
                ends[2] = self._chain()
        return RULES["loop"](None, word, name, *ends, self._block())

    def _branch(self, word: Word) -> Any:
        condition, then, otherwise = self._term(), self._block(), None
        if self._keyword("else"):
            start = self._at
            if self._keyword("if"):
                second = Word("if")
                second.start_pos = start
                self._inside()
                otherwise = self._branch(second)
                self._depth -= 1
            else:
                otherwise = self._block()
        return RULES["branch"](None, word, condition, then, otherwise)

    def _where(self) -> tuple[Any, ...]:
        return self._listed(self._clause)

    def _clause(self) -> Any:
        if self._keyword("exists"):
            name = self._name()
            self._need("(")
            return RULES["exists"](None, name, self._terms(")"))
        name = self._name()
        if not self._keyword("in"):
            return RULES["given"](None, name, self._assign(), self._term())
        low = self._chain()
        self._need(":")
        return RULES["range"](None, name, low, self._chain())

    # ---- terms ---------------------------------------------------------------------------------

    def _terms(self, end: str) -> tuple[Any, ...] | None:
        """Terms up to a closing mark, which is read; None if there are none."""
        if self._mark(end):
            return None
        found = self._listed(self._term)
        self._need(end)
        return found

    def _term(self) -> Any:
        condition = self._chain()
        if not self._mark("?"):
            return condition
        self._inside()
        then = self._term()
        self._need(":")
        made = RULES["select"](None, condition, then, self._term())
        self._depth -= 1
        return made

    def _chain(self) -> Any:
        parts = [self._unary()]
        while True:
            found = _match_operator(self._text, self._at)
            if found is None:
                break
            parts.append(self._word(found.end()))
            parts.append(self._unary())
        return parts[0] if len(parts) == 1 else RULES["operators"](None, *parts)

    def _unary(self) -> Any:
        found = _match_atom(self._text, self._at)
        if found is None:
            raise _OtherText
        kind, word = found.lastgroup, self._word(found.end())
        if kind == "name":
            return self._named(word)
        if kind in ("number", "spread", "dimension"):
            return RULES[kind](None, word)
        self._inside()
        if kind == "prefix":
            made = RULES["prefix"](None, word, self._unary())
        elif kind == "count":
            found = _match_atom(self._text, self._at)
            if found is None or found.lastgroup != "spread":
                raise _OtherText
            made = RULES["count"](None, word, self._word(found.end()))
            self._need(")")
        else:
            made = self._term()
            self._need(")")
            if kind == "convert":
                made = RULES["convert"](None, word, made)
        self._depth -= 1
        return made

    def _named(self, name: Word) -> Any:
        """A name, a call, or a read, perhaps with its default."""
        if name in _WORDS and name not in CONSTANTS:
            raise _OtherText
        if self._text.startswith(("(", "["), self._at):
            self._inside()
            if self._mark("["):
                made = RULES["flat"](None, name, self._term())
                self._need("]")
            else:
                made = self._call(name)
            self._depth -= 1
        else:
            return RULES["name"](None, name)
        if self._keyword("else"):
            return RULES["guarded"](None, made, self._unary())
        return made

    def _call(self, name: Word) -> Any:
        self._need("(")
        arguments = None
        if not self._text.startswith((")", ";"), self._at):
            arguments = self._listed(self._term)
        settings = self._listed(self._setting) if self._mark(";") else None
        self._need(")")
        return RULES["call"](None, name, arguments, settings)

    def _setting(self) -> Any:
        name = self._name()
        self._need("=")
        return RULES["setting"](None, name, self._term())

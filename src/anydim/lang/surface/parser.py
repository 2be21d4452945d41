"""Parses text to a surface tree. Every invalid text raises a LanguageError with its position.

`descent.py` reads almost all texts. The parser of the grammar reads the others, and reports errors;
it is loaded on first use (`tables.py`, about 30 ms including lark) and kept. Results are cached by
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from re import MULTILINE
from re import compile as pattern
from typing import TYPE_CHECKING, Any

from anydim.base.errors import LanguageError
from anydim.lang.surface.check import check_name
from anydim.lang.surface.descent import read_definitions
from anydim.lang.surface.hints import mistake
from anydim.lang.surface.linking import link
from anydim.lang.surface.rules import builder
from anydim.lang.surface.structure_types import declared_types
from anydim.lang.surface.syntax import Definition, Problem, StructureType, error_at
from anydim.lang.surface.tables import load_language

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput

LONGEST_TEXT = 1_000_000


def parse(text: str, file: str = "<text>") -> dict[str, Definition]:
    """Parse the definitions of a text, by name, in order; raises LanguageError for a bad text."""
    return {definition.name: definition for definition in _parsed(text, file)}


def parse_users(text: str, file: str = "<text>") -> dict[str, Definition]:
    """`parse` of a user's text, whose definitions are called by name: none is a reserved word."""
    found = parse(text, file)
    for definition in found.values():
        check_name(definition)
    return found


def parse_definition(text: str, file: str = "<text>") -> Definition:
    """Parse a text with one definition; raises LanguageError unless it has exactly one."""
    found = _parsed(text, file)
    if len(found) != 1:
        raise LanguageError(f"{file}: expected one definition, found {len(found)}")
    return found[0]


class Library(Mapping[str, Definition]):
    """The definitions of a text, each parsed at its first lookup.

    Definitions start at the beginning of a line. For a library of which a program uses a part.
    """

    def __init__(self, text: str, file: str = "<text>") -> None:
        starts = [(match.start(), match[1]) for match in _START.finditer(text)]
        ends = [start for start, _ in starts[1:]] + [len(text)]
        self._file = file
        self._parts = {
            name: (text.count("\n", 0, start), text[start:end])
            for (start, name), end in zip(starts, ends)
        }

    def __getitem__(self, name: str) -> Definition:
        line, part = self._parts[name]
        return parse_definition("\n" * line + part, self._file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


_START = pattern(r"^def\s+([A-Za-z_]\w*)", MULTILINE)


def parse_types(text: str, file: str = "<text>") -> dict[str, StructureType]:
    """Parse a text and return the structure types that it declares, by name, in order.

    Raises LanguageError for a bad text.
    """
    _parsed(text, file)
    return {declared.name: declared for declared in unlinked(text, file)[0]}


@lru_cache(maxsize=4096)
def _parsed(text: str, file: str) -> tuple[Definition, ...]:
    return linked(*unlinked(text, file), text, file)


def linked(
    types: Sequence[StructureType], definitions: Sequence[Definition], text: str, file: str
) -> tuple[Definition, ...]:
    """Check and link what `unlinked` read from a text; raises LanguageError."""
    located = [replace(definition, text=text, file=file) for definition in definitions]
    return link(located, declared_types(types, text, file))


@lru_cache(maxsize=64)
def unlinked(text: str, file: str) -> tuple[list[StructureType], list[Definition]]:
    """The declarations and definitions of a text, as they are written; raises LanguageError."""
    types, definitions = read_definitions(text) or run_grammar(grammar(), text, file)
    names: set[str] = set()
    for definition in definitions:
        if definition.name in names:
            raise error_at(
                text, file, definition.position, f"'{definition.name}' is defined twice",
                "give one of them another name",
            )  # fmt: skip
        names.add(definition.name)
    return types, definitions


# ---- the grammar -------------------------------------------------------------------------------


def run_grammar(lark: Lark, text: str, file: str) -> Any:
    """Parse a text with a grammar; raises LanguageError with the position of a failure."""
    from lark.exceptions import UnexpectedInput

    if len(text) > LONGEST_TEXT:
        raise LanguageError(f"{file}: a text of {len(text)} characters is too long")
    try:
        return lark.parse(text)
    except Problem as problem:
        raise error_at(text, file, problem.position, problem.text, problem.hint) from None
    except UnexpectedInput as error:
        found = _located(error, text)
        raise error_at(text, file, found.position, found.text, found.hint) from None


def _located(error: UnexpectedInput, text: str) -> Problem:
    """Describe a syntax error."""
    expected = getattr(error, "accepts", None) or getattr(error, "expected", None)
    terminals = set(expected or getattr(error, "allowed", None) or ())
    words = _expected(terminals)
    token = getattr(error, "token", None)
    position = error.pos_in_stream
    if position is None or (token is not None and token.type == "$END"):
        return Problem(len(text.rstrip()), f"the text ends early; expected {words}")
    found = _piece(text, position, str(token or ""))
    hint = mistake(text, position, terminals)
    return Problem(position, f"expected {words}, found '{found}'", hint)


@cache
def grammar() -> Lark:
    """Return the parser of definitions; loaded once."""
    return load_language(builder())


def _piece(text: str, position: int, token: str) -> str:
    """The operator at a position, else the token there, else the character."""
    match = _OPERATOR.match(text, position)
    return match[0] if match else token or repr(text[position])[1:-1]


_OPERATOR = pattern(r"->|[-+*/<>=!&|]{1,2}")
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "ELLIPSIS": "'...name'", "ASSIGN": "an assignment",
    "OPERATOR": "an operator", "MINUS": "", "PREFIX": "", "DIMENSION": "", "CAST": "", "SIZE": "",
    "FOR": "'for'", "IF": "'if'", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'",
    "LBRACE": "'{'", "RBRACE": "'}'", "COMMA": "','", "SEMICOLON": "';'", "COLON": "':'",
    "QMARK": "'?'", "EQUAL": "'='", "DEF": "'def'", "WHERE": "'where'", "ELSE": "'else'",
    "IN": "'in'", "BRACED": "", "QUOTED": "", "EXISTS": "'exists'", "$END": "the end",
    "_ARROW": "'->'", "STRUCTURE": "'type'", "MATCH": "'match'", "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
}  # fmt: skip


_BETWEEN = {"RBRACE", "NAME", "SEMICOLON", "LPAR"}  # constructors of a type, cases of a match


def _expected(terminals: set[str]) -> str:
    if "NAME" in terminals and "NUMBER" in terminals:
        return "an expression"
    if "RBRACE" in terminals and not terminals <= _BETWEEN:
        return "a statement or '}'"
    if "OPERATOR" in terminals:
        terminals = terminals - {"QMARK", "ELSE", "WHERE", "LPAR", "LSQB"}
    if "ASSIGN" in terminals and "LPAR" not in terminals:
        terminals = terminals - {"COMMA"}  # several results of a call for each row are rare
    words = sorted({_WORDS.get(name, name.lower()) for name in terminals} - {""})
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "the end"

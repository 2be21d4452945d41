"""Parses text to a surface tree. Every invalid text raises a LanguageError with its position.

Results are cached by text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from re import MULTILINE
from re import compile as pattern
from typing import TypeVar

from anydim.base.errors import LanguageError
from anydim.lang.surface.check import check_name
from anydim.lang.surface.descent import DefinitionReader
from anydim.lang.surface.linking import link
from anydim.lang.surface.structure_types import declared_types
from anydim.lang.surface.syntax import Definition, Problem, StructureType, error_at

LONGEST_TEXT = 1_000_000  # characters
Tree = TypeVar("Tree")


def parse(text: str, file: str = "<text>") -> dict[str, Definition]:
    """Parse the definitions of a text, by name, in order; raises LanguageError for a bad text."""
    return {definition.name: definition for definition in _parse_linked(text, file)}


def parse_users(text: str, file: str = "<text>") -> dict[str, Definition]:
    """`parse` of a user's text, whose definitions are called by name: none is a reserved word."""
    found = parse(text, file)
    for definition in found.values():
        check_name(definition)
    return found


def parse_definition(text: str, file: str = "<text>") -> Definition:
    """Parse a text with one definition; raises LanguageError unless it has exactly one."""
    found = _parse_linked(text, file)
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
    _parse_linked(text, file)
    return {declared.name: declared for declared in _parse_unlinked(text, file)[0]}


@lru_cache(maxsize=4096)
def _parse_linked(text: str, file: str) -> tuple[Definition, ...]:
    types, definitions = _parse_unlinked(text, file)
    located = [replace(definition, text=text, file=file) for definition in definitions]
    return link(located, declared_types(types, text, file))


@lru_cache(maxsize=64)
def _parse_unlinked(text: str, file: str) -> tuple[list[StructureType], list[Definition]]:
    """The declarations and definitions of a text, as they are written; raises LanguageError."""
    types, definitions = read_text(lambda text: DefinitionReader(text).read(), text, file)
    names: set[str] = set()
    for definition in definitions:
        if definition.name in names:
            raise error_at(
                text, file, definition.position, f"'{definition.name}' is defined twice",
                "give one of them another name",
            )  # fmt: skip
        names.add(definition.name)
    return types, definitions


def read_text(read: Callable[[str], Tree], text: str, file: str) -> Tree:
    """The tree that `read` makes of a text; raises LanguageError with the position of a failure."""
    if len(text) > LONGEST_TEXT:
        raise LanguageError(f"{file}: a text of {len(text)} characters is too long")
    try:
        return read(text)
    except Problem as problem:
        raise error_at(text, file, problem.position, problem.text, problem.hint) from None
    except RecursionError:  # of a caller that is deep in calls itself
        raise LanguageError(f"{file}: the text is nested too deep") from None

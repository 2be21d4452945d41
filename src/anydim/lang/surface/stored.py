"""On-disk cache of parsed definitions, so that later processes need no parser of the grammar.

Texts that `descent.py` reads are not kept: that is as fast. Surface trees are stored as JSON: a
node is [its kind, its fields...], a tuple ["", ...].
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from anydim.base.cache import code_version, key_of, user_cache
from anydim.lang.surface import syntax
from anydim.lang.surface.parser import is_usual, linked, parse, parse_definition, unlinked
from anydim.lang.surface.syntax import Definition

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        syntax.Number, syntax.Name, syntax.Spread, syntax.Dimension, syntax.Count, syntax.CallTerm,
        syntax.Setting, syntax.Flat, syntax.Operation, syntax.Convert, syntax.Range,
        syntax.Exists, syntax.Assignment, syntax.Invoke, syntax.LoopBlock, syntax.BranchBlock,
        syntax.WhileBlock,
        syntax.Parameter, syntax.Attribute, syntax.Definition, syntax.MatchBlock, syntax.Case,
        syntax.Pattern, syntax.Constructor, syntax.StructureType,
    )
}  # fmt: skip


def stored_definition(text: str, file: str) -> Definition:
    """Parse a text with one definition, or load it from the disk cache.

    Raises LanguageError for an invalid text, or one without exactly one definition.
    """
    cache = None if is_usual(text) else user_cache()
    if cache is None:
        return parse_definition(text, file)
    key = key_of("definition", code_version(), text)
    data = cache.get(key)
    if data is not None:
        made = from_json(data)
        family = tuple(replace(each, text=text, file=file) for each in made.family)
        return replace(made, text=text, file=file, family=family)
    definition = parse_definition(text, file)
    cache.put(key, to_json(definition))
    return definition


def stored_definitions(text: str, file: str) -> dict[str, Definition]:
    """Parse the definitions of a text, by name, in order, or load them from the disk cache.

    Raises LanguageError for a bad text.
    """
    cache = None if is_usual(text) else user_cache()
    if cache is None:
        return parse(text, file)
    key = key_of("definitions", code_version(), text)
    data = cache.get(key)
    if data is None:
        found = parse(text, file)
        cache.put(key, json.dumps([_listed(tuple(part)) for part in unlinked(text, file)]).encode())
        return found
    types, definitions = map(_made, json.loads(data))
    return {definition.name: definition for definition in linked(types, definitions, text, file)}


def to_json(definition: Definition) -> bytes:
    """Serialise a definition, without its text and file."""
    return json.dumps(_listed(definition)).encode()


def from_json(data: bytes) -> Definition:
    """Deserialise the output of `to_json`; text and file stay empty."""
    definition = _made(json.loads(data))
    assert isinstance(definition, Definition)
    return definition


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return ["", *map(_listed, value)]
    kind = type(value).__name__
    if kind not in _KINDS:
        return value
    if kind == "Definition":
        value = replace(value, text="", file="")
    return [kind, *map(_listed, vars(value).values())]


def _made(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *fields = value
    parts = tuple(map(_made, fields))
    return _KINDS[kind](*parts) if kind else parts

"""On-disk cache of parsed definitions, so that later processes need no parser for them.

Surface trees are stored as JSON: a node is [its kind, its fields...], a tuple ["", ...].
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from anydim.base.cache import code_version, key_of, user_cache
from anydim.lang.surface import syntax
from anydim.lang.surface.linking import link
from anydim.lang.surface.parser import parse, parse_definition
from anydim.lang.surface.syntax import Definition

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        syntax.Number, syntax.Name, syntax.Spread, syntax.Dimension, syntax.Count, syntax.CallTerm,
        syntax.Setting, syntax.Flat, syntax.Operation, syntax.Convert, syntax.Range,
        syntax.Exists, syntax.Assignment, syntax.Invoke, syntax.LoopBlock, syntax.BranchBlock,
        syntax.Parameter, syntax.Attribute, syntax.Definition,
    )
}  # fmt: skip


def stored_definition(text: str, file: str) -> Definition:
    """Parse a text with one definition, or load it from the disk cache.

    Raises LanguageError for an invalid text, or one without exactly one definition.
    """
    cache = user_cache()
    if cache is None:
        return parse_definition(text, file)
    key = key_of("definition", code_version(), text)
    data = cache.get(key)
    if data is not None:
        return replace(from_json(data), text=text, file=file)
    definition = parse_definition(text, file)
    cache.put(key, to_json(definition))
    return definition


def stored_definitions(text: str, file: str) -> dict[str, Definition]:
    """Parse the definitions of a text, by name, in order, or load them from the disk cache.

    Raises LanguageError for a bad text.
    """
    cache = user_cache()
    if cache is None:
        return parse(text, file)
    key = key_of("definitions", code_version(), text)
    data = cache.get(key)
    if data is None:
        found = parse(text, file)
        alone = (replace(d, text="", file="", callees=()) for d in found.values())
        cache.put(key, json.dumps([_listed(definition) for definition in alone]).encode())
        return found
    made = [replace(_made(part), text=text, file=file) for part in json.loads(data)]
    return {definition.name: definition for definition in link(made)}


def to_json(definition: Definition) -> bytes:
    """Serialise a definition, without its text and file."""
    return json.dumps(_listed(replace(definition, text="", file=""))).encode()


def from_json(data: bytes) -> Definition:
    """Deserialise the output of `to_json`; text and file stay empty."""
    definition = _made(json.loads(data))
    assert isinstance(definition, Definition)
    return definition


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return ["", *map(_listed, value)]
    kind = type(value).__name__
    return [kind, *map(_listed, vars(value).values())] if kind in _KINDS else value


def _made(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *fields = value
    parts = tuple(map(_made, fields))
    return _KINDS[kind](*parts) if kind else parts

"""Definitions that implement operators of a model, by domain and name.

    operators="mine.tc"                          a file that says `# domain: my.ops`
    operators=["mine.tc", "yours.tc"]            several
    operators={"my.ops": "mine.tc"}              a file, or the text itself, for a domain
    operators={("my.ops", "Gate"): lib.gate}     one function for one operator

A node `my.ops.LeakyGate` resolves to definition `LeakyGate`, or else `leaky_gate`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.errors import OptionError
from anydim.base.read_files import note_read
from anydim.base.user_values import path_of, short_repr
from anydim.compiler.frontends.text_source import domain_of
from anydim.lang.surface.parser import parse
from anydim.lang.surface.syntax import Definition

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
Operators = Mapping[tuple[str, str], Definition]


def operators_of(given: Any) -> Operators:
    """Definitions by domain and name; raises OptionError, and LanguageError for a bad text."""
    parts = given if isinstance(given, (list, tuple)) else (given,)
    return {key: value for part in parts for key, value in _of_part(part).items()}


def _of_part(given: Any) -> Operators:
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        text, file = read_text(given)
        domain = domain_of(text)
        if not domain:
            raise OptionError(
                f"{file} declares no domain for its operators",
                "write a line `# domain: my.ops`, or give {'my.ops': path}",
            )
        return _all(text, file, domain)
    if isinstance(given, Mapping):
        return {key: value for part in given.items() for key, value in _entry(*part).items()}
    raise OptionError(
        f"operators is {short_repr(given)}",
        "give the path of a .tc file, a list of them, or a mapping from domains",
    )


def _entry(key: Any, value: Any) -> Operators:
    if isinstance(key, tuple) and len(key) == 2:
        definition = getattr(value, "definition", value)
        if not isinstance(definition, Definition):
            raise OptionError(
                f"operator {key[1]} of {key[0]}: {short_repr(value)} is no definition"
            )
        return {(str(key[0]), str(key[1])): definition}
    if not isinstance(key, str) or not isinstance(value, (str, os.PathLike)):
        raise OptionError(
            f"operators for {short_repr(key)} are {short_repr(value)}", "give a path or a text"
        )
    if isinstance(value, str) and re.search(r"\bdef\s", value):
        return _all(value, f"<{key}>", key)
    return _all(*read_text(value), key)


def _all(text: str, file: str, domain: str) -> Operators:
    return {(domain, name): d for name, d in parse(text, file).items()}


def read_text(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read a text file and its name; OptionError if it cannot be read."""
    try:
        path = path_of("path", path)
        note_read(path)
        return Path(path).read_text("utf-8"), Path(path).name
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OptionError(f"cannot read '{os.fspath(path)}': {reason}") from None


def find_operator(operators: Operators, domain: str, name: str) -> Definition | None:
    """The definition of an operator, under its name or its snake_case name."""
    found = operators.get((domain, name))
    return found or operators.get((domain, _WORD.sub("_", name).lower()))

"""Promise: text is read and written as UTF-8, whatever the locale of the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "bench", "examples", "release")
POSITION = {"read_text": 0, "write_text": 1}  # of the encoding
CALLS = re.compile(r"\b(open|read_text|write_text)\(")


def by_locale(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that leave the encoding of a text to the locale."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_of_text(node):
            named = {keyword.arg for keyword in node.keywords}
            last = POSITION.get(_name(node))
            if "encoding" not in named and (last is None or len(node.args) <= last):
                yield node.lineno


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_of_text(call: ast.Call) -> bool:
    if _name(call) != "open":
        return _name(call) in POSITION
    builtin = isinstance(call.func, ast.Name)
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    modes += call.args[builtin : builtin + 1]
    if not modes:
        return builtin
    mode = modes[0].value if isinstance(modes[0], ast.Constant) else ""
    return mode in ("r", "w", "a", "x", "r+", "w+", "a+", "rt", "wt")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_names_its_encoding(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if CALLS.search(text := path.read_text("utf-8"))
        for line in by_locale(ast.parse(text))
    ]
    assert not found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("p.read_text()", True),
        ("p.read_text('utf-8')", False),
        ("p.write_text(t)", True),
        ("p.write_text(t, encoding='utf-8')", False),
        ("open(p)", True),
        ("open(p, 'rb')", False),
        ("open(p, mode='w')", True),
        ("open(p, 'w', encoding='utf-8')", False),
        ("p.open('a')", True),
        ("p.open('wb')", False),
        ("device.open()", False),
    ],
)
def test_what_is_found(code: str, found: bool) -> None:
    assert bool(list(by_locale(ast.parse(code)))) is found

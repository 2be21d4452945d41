"""Every definition of the repository, and arguments for it at any size, in float64.

Definitions are those of `tc` blocks of pages, of strings in their Python blocks and in Python
files, and of `.tc` files. All floats are of the type double.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.errors import UserError
from anydim.lang.resolve.ranks import ellipses_of
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition, print_term
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Parameter, Spread

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "examples", "tests", "bench", "src")
NARROW = re.compile(r"\b(?:float|half|float32|float16|bfloat16)\b(?=[ (>](?!\w+ = ))")
HEAD = re.compile(r"\bdef\s+\w+\s*\(.*?\)\s*->", re.S)
BLOCK = re.compile(r"^```(tc|python)\n(.*?)^```", re.M | re.S)


@cache
def definitions(folders: tuple[str, ...] = FOLDERS) -> Mapping[str, Definition]:
    """All definitions with one body each, by 'file: name' (and a number if there are several).

    `folders` are the first of `FOLDERS`.
    """
    known: dict[Any, str] = {}
    found: dict[str, Definition] = {}
    for path in _files(folders):
        place = path.relative_to(ROOT).as_posix()
        for text in _texts(path):
            for definition in _parsed(text):
                body = print_definition(definition), definition.callees, definition.types
                if body not in known:
                    known[body] = place
                    found[_free(f"{place}: {definition.name}", found)] = definition
    return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    names = (name, *(f"{name} {number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in taken)


def _files(folders: tuple[str, ...]) -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".md", ".py", ".tc"):
                yield path


def _texts(path: Path) -> Iterator[str]:
    """Texts of a file that may be definitions."""
    text = path.read_text("utf-8")
    if not HEAD.search(text):
        return
    if path.suffix == ".tc":
        yield text
    elif path.suffix == ".py":
        yield from _strings(text)
    else:
        for kind, block in BLOCK.findall(text):
            yield from [block] if kind == "tc" else _strings(block)


def _strings(source: str) -> Iterator[str]:
    """The strings of Python code with a definition in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if HEAD.search(node.value):
                yield node.value


def _parsed(text: str) -> tuple[Definition, ...]:
    try:
        return tuple(parse(NARROW.sub("double", text)).values())
    except UserError:
        return ()  # a template, a text of errors, or words about a definition


def arguments(definition: Definition, n: int, seed: int) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Arguments of size n and attributes. Odd seeds: floats between 0 and 1; else normal.

    Integers are those of positions: from 0 to n - 1.
    """
    rng = np.random.default_rng(seed)
    attributes: dict[str, Any] = {f"...{name}": 1 for name in ellipses_of(definition)}
    for each in definition.attributes:
        if each.default is None or each.kind == "type":
            attributes[each.name] = {"float": 0.5, "bool": True, "type": "float64"}.get(
                each.kind, 1
            )
    sizes = {a.name: a.default for a in definition.attributes} | attributes
    arrays = [_array(p, _shape(p, n, sizes), n, rng, seed) for p in definition.parameters]
    return arrays, attributes


class _Sizes(dict[str, Any]):
    """Sizes by name; those without a value of their own are n."""

    n = 0

    def __missing__(self, name: str) -> int:
        return self.n


def _shape(parameter: Parameter, n: int, sizes: Mapping[str, Any]) -> tuple[int, ...]:
    known = _Sizes(sizes)
    known.n = n
    made = []
    for term in parameter.shape:
        text = str(n) if isinstance(term, Spread) else print_term(term)
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        scope = {name: known[name] for name in names - {"min", "max"}}
        made.append(max(0, int(eval(text, {"__builtins__": {}, "min": min, "max": max}, scope))))
    return tuple(made)


def _array(
    parameter: Parameter, shape: tuple[int, ...], n: int, rng: np.random.Generator, seed: int
) -> np.ndarray:
    kind = TYPE_NAMES.get(parameter.type, "float64")
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.startswith(("int", "uint")):
        return np.asarray(rng.integers(0, max(n, 1), shape)).astype(kind)
    return np.asarray(rng.random(shape) if seed % 2 else rng.standard_normal(shape))

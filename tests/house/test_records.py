"""Promise: code asks targets, templates, passes and strategies for properties, not for names."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

from anydim.compiler.frontends.frontend import Frontend
from anydim.compiler.frontends.table import FRONTENDS
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.pipeline import PASSES
from anydim.compiler.targets.targets import TARGETS
from anydim.compiler.variants.strategies import (
    Adaptive,
    Buckets,
    Exact,
    Pad,
    Where,
)

ROOT = pathlib.Path(__file__).resolve().parents[2] / "src" / "anydim"
NAMES = {*TARGETS, *(t.name for t in TEMPLATES), *(p.name for p in PASSES)}
NAMES -= {"int8", "bfloat16"}  # types
KINDS = {kind.__name__ for kind in (Adaptive, Buckets, Exact, Pad, Where)}


def compared_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Comparisons of an attribute `name` with the name of a record, or with names in a table."""
    tables = {
        target.id: node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if not any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides):
            continue
        for side in sides:
            meant = tables.get(side.id, side) if isinstance(side, ast.Name) else side
            for part in ast.walk(meant):
                if isinstance(part, ast.Constant) and part.value in NAMES:
                    yield str(part.value), node.lineno


def kinds_of_strategies_asked(tree: ast.AST) -> Iterator[int]:
    """The lines that test whether an object is of one kind of strategy."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "isinstance" and len(node.args) == 2:
                names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.args[1])}
                if names & KINDS:
                    yield node.lineno


def test_no_code_compares_the_name_of_a_record() -> None:
    compared = re.compile(f"[\"']({'|'.join(NAMES)})[\"']")
    asked = re.compile(rf"isinstance\(.*\b({'|'.join(KINDS)})\b", re.DOTALL)
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text("utf-8")
        if not ((".name" in text and compared.search(text)) or asked.search(text)):
            continue  # most files, without their trees
        tree = ast.parse(text)
        assert not list(compared_names(tree)), path
        assert not list(kinds_of_strategies_asked(tree)), path


def test_the_check_finds_comparisons() -> None:
    for text in ('t.name == "rows"', '"llvm" != x.target.name', 'a.name in ("c", "d")',
                 'T = ("fuse",)\na.name in T'):  # fmt: skip
        assert list(compared_names(ast.parse(text))), text
    assert list(
        kinds_of_strategies_asked(ast.parse("isinstance(leaf, (strategies.Exact, Adaptive))"))
    )
    assert not list(kinds_of_strategies_asked(ast.parse("isinstance(leaf, Strategy)")))
    assert not list(compared_names(ast.parse('a.kind == "rows" or a.name == "other"')))


def test_a_frontend_says_what_it_is() -> None:
    for frontend in FRONTENDS:
        assert isinstance(frontend, Frontend)
        assert frontend.title.startswith(("a ", "an ")) and frontend.accepts


def test_locks_of_modules_are_free_in_forked_children() -> None:
    """`base/fork_locks.py`: a plain lock that another thread held stays locked in the child."""
    plain = re.compile(r"^\w+( *:[^=]*)? *= *(threading\.)?(R?Lock|Condition|Semaphore)\(", re.M)
    files = sorted(ROOT.rglob("*.py"))
    assert [file.name for file in files if plain.search(file.read_text("utf-8"))] == []

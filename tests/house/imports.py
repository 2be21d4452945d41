"""The imports of a module, read once: statements, `import_module` and `late_names`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[2] / "src"
Statement: TypeAlias = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Imports:
    """The import statements of a module, those in functions, and (module, line) of late ones."""

    statements: tuple[Statement, ...]
    hidden: tuple[Statement, ...]
    late: tuple[tuple[str, int], ...]


@cache
def imports_of(path: Path) -> Imports:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    statements = tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    indented = {statement for statement in statements if statement.col_offset}
    hidden = tuple(
        inner for node in nodes
        if indented and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node) if inner in indented
    )  # fmt: skip
    package = module_of(path) if path.name == "__init__.py" else ""
    return Imports(statements, hidden, tuple(late_imports(nodes, package)))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def late_imports(nodes: list[ast.AST], package: str) -> Iterator[tuple[str, int]]:
    """(module, line) of each late import of a module of anydim.

    `import_module(f"anydim.cli.{name}")` yields "anydim.cli.*": any module of the package. Strings
    that name a module in a table count, too: they are arguments of `import_module` elsewhere.
    `late_names(__name__, {...})` in the `__init__.py` of `package` names its modules.
    """
    loggers = {
        id(node.args[0]) for node in nodes
        if isinstance(node, ast.Call) and called(node) == "getLogger" and node.args
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            is_module = parts[0] == "anydim" and len(parts) > 1
            if is_module and id(node) not in loggers and all(p.isidentifier() for p in parts):
                yield node.value, node.lineno
        elif isinstance(node, ast.Call) and called(node) == "import_module":
            first = node.args[0]
            if isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
                prefix = str(first.values[0].value)
                assert prefix.startswith("anydim.") and prefix.endswith("."), node.lineno
                yield f"{prefix}*", node.lineno
    names = {
        target.id: node.value for node in nodes if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Call) and called(node) == "late_names" and package:
            table = node.args[1]
            table = names[table.id] if isinstance(table, ast.Name) else table
            assert isinstance(table, ast.Dict), node.lineno
            for key in table.keys:
                assert isinstance(key, ast.Constant), node.lineno
                yield f"{package}.{key.value}", node.lineno


def called(node: ast.Call) -> str:
    """The name of a called function, without its module."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

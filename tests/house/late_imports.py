"""Imports by `import_module` and `late_names`, read from syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache


@cache
def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


def late_imports(tree: ast.AST, package: str = "") -> Iterator[tuple[str, int]]:
    """(module, line) of each late import of a module of anydim.

    `import_module(f"anydim.cli.{name}")` yields "anydim.cli.*": any module of the package. Strings
    that name a module in a table count, too: they are arguments of `import_module` elsewhere.
    `late_names(__name__, {...})` in the `__init__.py` of `package` names its modules.
    """
    loggers = {
        id(node.args[0]) for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) == "getLogger" and node.args
    }  # fmt: skip
    for node in ast.walk(tree):
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
        target.id: node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(tree):
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

"""Numbers of the kernels that choose: constants of modules that conditions compare or divide by.

    python -m bench.kernels.constants [--list] [FOLDER]

A constant counts if a module of the folder assigns a number, or a tuple of numbers, to a name,
and some comparison, division, minimum, maximum or condition of the folder names it.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

import anydim

_CALLS = {
    "at_most", "at_least", "condition", "exactly", "min", "max", "minimum", "maximum", "least",
    "greatest", "fits",
}  # fmt: skip


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, arithmetic of numbers, or a tuple of them."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.UnaryOp) and is_number(node.operand)


def assigned(tree: ast.Module) -> Iterator[str]:
    """The names of numbers that a module assigns."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and is_number(node.value):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (name.id for name in names if isinstance(name, ast.Name))


def compared(tree: ast.Module) -> Iterator[str]:
    """The names in conditions of a module."""
    for node in ast.walk(tree):
        divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        called = getattr(node, "func", None)
        chooses = getattr(called, "id", getattr(called, "attr", "")) in _CALLS
        if divides or chooses or isinstance(node, ast.Compare):
            yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=Path(anydim.__file__).with_name("kernels"))
    parser.add_argument("--list", action="store_true", help="print the names, too")
    given = parser.parse_args()
    files = sorted(Path(given.folder).rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    used = {name for tree in trees.values() for name in compared(tree)}
    found = {file: set(assigned(tree)) for file, tree in trees.items()}
    chosen = {file: sorted(names & used) for file, names in found.items() if names & used}
    if given.list:
        for file, names in chosen.items():
            print(f"{file.relative_to(given.folder)}: {', '.join(names)}")
    count = sum(map(len, found.values()))
    print(f"{count} numbers, {sum(map(len, chosen.values()))} of them in conditions")


if __name__ == "__main__":
    main()

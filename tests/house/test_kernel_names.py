"""Promise: a file of kernels uses no name of loop IR that only another file spells.

What one function names and another uses is a field of a record (`ir.variables`), which mypy checks.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[2] / "src" / "anydim" / "kernels"
USES = {"variable": 0, "register": 0, "Var": 1, "Get": 1}  # the argument that is the name


def spelled(node: ast.AST) -> str:
    """The name that an expression like `variable("x")` uses; empty for others."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    argument = node.args[USES[called]] if called in USES and len(node.args) > USES[called] else None
    found = argument.value if isinstance(argument, ast.Constant) else ""
    return found if isinstance(found, str) else ""


def bound(tree: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """(handle, name, whether the module binds it) of each `handle = variable("x")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts) if both else [(target, value)]
            for own, made in pairs:
                if spelled(made):
                    yield ast.unparse(own), spelled(made), node in tree.body


def uses_and_definitions(text: str) -> tuple[set[str], set[str]]:
    """The names that a file uses by spelling, and those that it spells elsewhere or hands on."""
    tree = ast.parse(text)
    used = {spelled(node) for node in ast.walk(tree)} - {""}
    inside = {id(part) for node in ast.walk(tree) if spelled(node) for part in ast.walk(node)}
    defined = {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
    }  # fmt: skip
    handles = {name for own, name, module in bound(tree) if module or f"{own}.name" in text}
    return used, defined | handles


def crossing(files: Mapping[str, str]) -> set[tuple[str, str]]:
    """(file, name) of names that a file uses and only others define."""
    found = {file: uses_and_definitions(text) for file, text in files.items()}
    everywhere = set().union(*(defined for _, defined in found.values()))
    return {
        (file, name)
        for file, (used, defined) in found.items()
        for name in (used - defined) & everywhere
    }


def test_no_name_of_loop_ir_crosses_files_by_spelling() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert not crossing(texts)


def test_a_name_that_only_another_file_defines_is_found() -> None:
    own = 'row = code.let(variable("row"))\nTOTAL = register("total")\nuse(variable("free"))'
    others = 'code.emit(ir.Let("row", at))\ncode.emit(ir.Declare("total", zero))'
    assert crossing({"own.py": own, "others.py": others}) == {("own.py", "row")}
    assert not crossing({"one.py": f"{own}\n{others}"})

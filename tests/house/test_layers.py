"""Promise: a module imports from lower layers or its own package only, in functions as well."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterable, Iterator
from importlib import import_module

import pytest

from tests.house.imports import ROOT, Statement, imports_of

PACKAGE = ROOT / "anydim"
LAYERS = (
    "base", "sizes", "runtime", "lang", "compiler", "deploy", "api",
    "torch", "ort", "sentence_transformers", "serving", "__init__",
    "cli", "__main__",
)  # fmt: skip
INTEGRATIONS = {"torch", "ort", "serving", "sentence_transformers"}
TABLE = PACKAGE / "base/integrations.py"  # names integrations, and imports them on first use
MOST = 12  # names on the top floor
RUNTIME_MAY_USE = {"base", "sizes", "runtime"}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def first_party(statements: Iterable[Statement]) -> Iterator[tuple[str, int]]:
    """(what is imported from the package, line)."""
    for node in statements:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "anydim":
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
                yield from ((name, node.lineno) for name in names)
        else:
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "anydim":
                    yield (parts[1] if len(parts) > 1 else "__init__"), node.lineno


def files_of(room: str) -> list[pathlib.Path]:
    return [path for path in FILES if room_of(path) == room]


def test_every_room_has_a_layer() -> None:
    assert set(LAYERS) == {room_of(path) for path in FILES}


def test_the_top_floor_fits_a_screen() -> None:
    assert len({*LAYERS} - {"__init__", "__main__"}) <= MOST


def test_integrations_are_above_the_interface() -> None:
    core = LAYERS[: LAYERS.index("api") + 1]
    assert not INTEGRATIONS & set(core)


@pytest.mark.parametrize("room", LAYERS)
def test_imports_point_down(room: str) -> None:
    for path in files_of(room):
        found = imports_of(path)
        late = [(name.split(".")[1], line) for name, line in found.late]
        for name, line in (*first_party(found.statements), *late):
            if name not in LAYERS or path == TABLE:
                continue
            assert LAYERS.index(name) <= LAYERS.index(room), f"{path}:{line}: {room} imports {name}"
            if room == "runtime":
                assert name in RUNTIME_MAY_USE, f"{path}:{line}: runtime imports {name}"


@pytest.mark.parametrize("room", LAYERS)
def test_an_import_in_a_function_spares_a_start(room: str) -> None:
    """What a module imports at its top anyway, no function of it imports again."""
    for path in files_of(room):
        found = imports_of(path)
        named = [node for node in found.statements if isinstance(node, ast.ImportFrom)]
        early = {node.module for node in named if not node.col_offset}
        again = [node.lineno for node in named if node in found.hidden and node.module in early]
        assert not again, f"{path}: functions import what is imported, lines {again}"


def test_the_runtime_knows_no_compiler() -> None:
    for path in (PACKAGE / "runtime").rglob("*.py"):
        for node in imports_of(path).statements:
            named = isinstance(node, ast.ImportFrom)
            names = [node.module or ""] if named else [alias.name for alias in node.names]
            assert not {"llvmlite", "onnx"} & {n.split(".")[0] for n in names}, path


# `import_module("anydim...").name`, which mypy does not check
LATE_NAME = re.compile(r'import_module\(\s*"(anydim\.[\w.]+)"\s*\)\s*\.(\w+)')
LATE_NAMES = {pair for path in FILES for pair in LATE_NAME.findall(path.read_text("utf-8"))}


OPTIONAL = {"google", "grpc", "ray", "starlette", "torch", "uvicorn"}  # that a module may need


@pytest.mark.parametrize("module, name", sorted(LATE_NAMES))
def test_names_of_late_imports_exist(module: str, name: str) -> None:
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    assert hasattr(loaded, name)

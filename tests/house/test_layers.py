"""Promise: a module imports from lower layers or its own package only, and hides no import."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest

from tests.house.late_imports import late_imports

ROOT = pathlib.Path(__file__).resolve().parents[2] / "src" / "anydim"
LAYERS = (
    "base", "sizes", "runtime", "devices", "program", "lang", "kernels", "targets", "native",
    "graph", "ops", "frontends", "passes", "variants", "deploy", "serving", "checking",
    "compile_progress", "device_placement",
    "compiler", "model", "compile_options", "compile_request",
    "string_model", "unranked_model", "stateful_model", "complex_model", "program_cache",
    "compile_source", "entry", "calibration_probes", "calibration", "backend",
    "cached_rows", "cached_model",
    "derivatives", "torch_operators", "torch_backend", "definitions",
    "model_store", "ort", "report", "sentence_transformers", "__init__",
    "server", "ray", "cli", "__main__",
)  # fmt: skip
RUNTIME_MAY_USE = {"base", "sizes", "runtime"}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def first_party_imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "anydim":
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
                yield from ((name, node.lineno) for name in names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "anydim":
                    yield (parts[1] if len(parts) > 1 else "__init__"), node.lineno


@cache
def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def files_of(room: str) -> list[pathlib.Path]:
    return [path for path in FILES if room_of(path) == room]


def test_every_room_has_a_layer() -> None:
    assert set(LAYERS) == {room_of(path) for path in FILES}


@pytest.mark.parametrize("room", LAYERS)
def test_imports_point_down(room: str) -> None:
    for path in files_of(room):
        late = [(name.split(".")[1], line) for name, line in late_imports(tree_of(path))]
        for name, line in (*first_party_imports(tree_of(path)), *late):
            if name not in LAYERS:
                continue
            assert LAYERS.index(name) <= LAYERS.index(room), f"{path}:{line}: {room} imports {name}"
            if room == "runtime":
                assert name in RUNTIME_MAY_USE, f"{path}:{line}: runtime imports {name}"


@pytest.mark.parametrize("room", LAYERS)
def test_no_first_party_import_hides_in_a_function(room: str) -> None:
    for path in files_of(room):
        for function in ast.walk(tree_of(path)):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                hidden = list(first_party_imports(function))
                assert not hidden, f"{path}: {function.name} imports {hidden}"


def test_the_runtime_knows_no_compiler() -> None:
    for path in (ROOT / "runtime").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {"llvmlite", "lark", "onnx"} & {n.split(".")[0] for n in names}, path


def late_names() -> Iterator[tuple[str, str]]:
    """(module, name) of each `import_module("anydim...").name`, which mypy does not check."""
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
                called, arguments = node.value.func, node.value.args
                if isinstance(called, ast.Name) and called.id == "import_module":
                    named = arguments[0] if arguments else None
                    if isinstance(named, ast.Constant) and str(named.value).startswith("anydim."):
                        yield str(named.value), node.attr


OPTIONAL = {"google", "grpc", "ray", "starlette", "torch", "uvicorn"}  # that a module may need


@pytest.mark.parametrize("module, name", sorted(set(late_names())))
def test_names_of_late_imports_exist(module: str, name: str) -> None:
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    assert hasattr(loaded, name)

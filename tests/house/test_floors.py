"""Promise: folders inside a room stand in an order, and no file imports in a circle.

A room with folders lists them in its docstring, each on a line of its own (`    codegen/    ...`),
in the order of their imports: a folder imports only from those above it, and from the room's files.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.imports import ROOT, imports_of, module_of

PACKAGE = ROOT / "anydim"
CIRCLES = {"sizes", "graph"}  # rooms whose records hold each other
FOLDERS = sorted(
    folder for folder in PACKAGE.rglob("*")
    if folder.is_dir() and any(folder.glob("*/__init__.py"))
)  # fmt: skip
COMPILER = PACKAGE / "compiler"  # its folders are rooms, and its files import from all of them
ROOMS = sorted(
    {path.parent for path in (*PACKAGE.glob("*/*.py"), *COMPILER.glob("*/*.py"))} - {COMPILER}
)


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


@cache
def modules_of(module: str) -> frozenset[str]:
    """The modules of the package that a module imports, for types alone or not, late or not."""
    found = set()
    imports = imports_of(MODULES[module])
    for name, _ in imports.late:
        folder = name.removesuffix("*")
        inside = {m for m in MODULES if m.rpartition(".")[0] + "." == folder}
        found |= inside if name != folder else {name} & MODULES.keys()
    for node in imports.statements:
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            named = {f"{base}.{alias.name}" for alias in node.names}
            found |= named & MODULES.keys() or {base} & MODULES.keys()
    return frozenset(found - {module})


def inside(folder: pathlib.Path) -> Iterator[str]:
    return map(module_of, sorted(folder.rglob("*.py")))


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle, empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_no_files_of_a_room_import_each_other_in_a_circle(room: pathlib.Path) -> None:
    own = set(inside(room))
    found = circle({module: set(modules_of(module) & own) for module in own})
    if room.name not in CIRCLES:
        assert not found, " -> ".join(found)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_folders_stand_in_the_order_of_their_imports(folder: pathlib.Path) -> None:
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    listed = re.findall(r"^    (\w+)/ ", doc, re.MULTILINE)
    there = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(listed) == there, f"the docstring of {folder.name}/__init__.py lists {listed}"
    for place, name in enumerate(listed):
        later = tuple(f"{module_of(folder)}.{other}." for other in listed[place + 1 :])
        for module in inside(folder / name):
            wrong = [m for m in modules_of(module) if f"{m}.".startswith(later)]
            assert not wrong, f"{module} imports {wrong}, which stands below it"


def test_folders_of_the_compiler_import_none_of_its_files() -> None:
    files = {module_of(path) for path in COMPILER.glob("*.py")} - {module_of(COMPILER / "x.py")}
    for module in MODULES:
        if module.startswith("anydim.compiler.") and module not in files:
            assert not modules_of(module) & files - {"anydim.compiler"}, module


def test_files_of_the_runtime_import_none_of_its_folders() -> None:
    """Devices and records of programs are above what runs a call."""
    runtime = PACKAGE / "runtime"
    folders = tuple(f"anydim.runtime.{path.parent.name}." for path in runtime.glob("*/__init__.py"))
    for path in runtime.glob("*.py"):
        wrong = [m for m in modules_of(module_of(path)) if f"{m}.".startswith(folders)]
        assert not wrong, f"{path} imports {wrong}"


KERNELS = COMPILER / "kernels"
SHARED = {KERNELS / "ir", KERNELS / "codegen", KERNELS / "matmul"}  # not folders of templates
FAMILIES = sorted({path.parent for path in KERNELS.rglob("__init__.py")} - SHARED - {KERNELS})


@pytest.mark.parametrize("family", FAMILIES, ids=lambda folder: str(folder.relative_to(KERNELS)))
def test_families_of_kernels_do_not_import_from_each_other(family: pathlib.Path) -> None:
    """What two families need is in a file of a folder above both, in `ir` or in `codegen`."""
    others = tuple(f"{module_of(other)}." for other in FAMILIES if other != family)
    for module in inside(family):
        wrong = [name for name in modules_of(module) if f"{name}.".startswith(others)]
        assert not wrong, f"{module} imports {wrong}, of another family"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_package_documents_its_input_and_output(room: pathlib.Path) -> None:
    doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    assert len(doc.splitlines()) >= 3 and re.search(r"\bIn(put)?(:| comes?\b)", doc), room.name

"""Promise: what loads and runs saved models imports numpy and the standard library alone."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import anydim
from release.runtime_wheel import SOURCE, modules


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules that are imported at run time, not for the checker of types alone."""
    skipped = {
        id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


# what the extras of the command line and of the server install, and an engine to compare with
OPTIONAL = {
    "cli": {"click", "rich", "onnxruntime"},
    "serving": {"jinja2", "starlette", "uvicorn", "httptools", "grpc", "google"},
}  # fmt: skip


def test_nothing_else_is_imported() -> None:
    here = {module.relative_to(SOURCE).with_suffix("") for module in modules()}
    for path in modules():
        for name in imported(ast.parse(path.read_text("utf-8"))):
            top = name.split(".")[0]
            if top != "anydim":
                allowed = OPTIONAL.get(path.relative_to(SOURCE).parts[1], set()) | {"numpy"}
                assert top in allowed or top in sys.stdlib_module_names, f"{path} imports {name}"
                continue
            parts = Path(*name.split("."))
            assert {parts, parts / "__init__"} & here, f"{path} imports {name}"


def modules_after(words: str) -> list[str]:
    """The modules of anydim that a process has after a line of Python."""
    script = f"import sys, anydim; {words}; print(*(m for m in sys.modules if m[:7] == 'anydim.'))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    return done.stdout.split()


def test_what_loads_imports_no_compiler() -> None:
    names = modules_after("anydim.load, anydim.Dim, anydim.float32, anydim.InputError")
    rooms = {name.split(".")[1] for name in names}
    assert rooms == {"base", "deploy", "runtime", "sizes"}
    assert "anydim.runtime.program.program_reports" not in names


def test_the_command_line_answers_ctrl_c_before_it_has_read_much() -> None:
    assert modules_after("import anydim.cli") == ["anydim.cli"]


@pytest.mark.parametrize("name", anydim.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(anydim, name) is getattr(anydim, name)


# what a second start does without: each took a millisecond or more
HEAVY = (
    "_hashlib", "difflib", "fcntl", "ipaddress", "llvmlite", "onnx", "pathlib",
    "platform", "random", "shutil", "sqlite3", "tempfile", "traceback", "urllib",
)  # fmt: skip
LATE = (
    "anydim.base.amounts", "anydim.base.locks", "anydim.api.compile_source", "anydim.lang",
    "anydim.compiler.pipeline", "anydim.compiler.frontends", "anydim.compiler.graph",
    "anydim.compiler.kernels", "anydim.compiler.passes", "anydim.compiler.targets",
    "anydim.compiler.variants.ledger", "anydim.compiler.variants.strategies.kinds",
    "anydim.runtime.program.program_reports", "anydim.sizes.enclosure", "anydim.sizes.proofs",
    "anydim.sizes.remedies", "anydim.sizes.sampling",
)  # fmt: skip


def test_a_second_start_imports_nothing_heavy(tmp_path: Path) -> None:
    """`ad.compile` of a program on disk, and its first call, beside what numpy imports."""
    text = tmp_path / "scaled.tc"
    text.write_text("def scaled(float(N) x) -> (y) { y(i) = x(i) * 3.0 }\n", "utf-8")
    time.sleep(2.1)  # the digest of a file that was just written is taken again
    script = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import anydim as ad\n"
        "model = ad.compile(sys.argv[1])\n"
        "model(numpy.ones(5, 'f4'))\n"
        "assert 'load' in model.report.seconds or sys.argv[2] == 'first'\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    known = {"PYTHONPATH": str(SOURCE), "ANYDIM_CACHE_DIR": str(tmp_path / "cache")}
    for start in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", script, f"{text}:scaled", start], capture_output=True,
            text=True, check=True, env=known,
        )  # fmt: skip
    names = done.stdout.split()
    roots = {name.split(".")[0] for name in names}
    assert not roots & set(HEAVY)
    assert not [name for name in names if name.startswith(LATE)]
    ours = [name for name in names if name.startswith("anydim")]
    assert len(ours) <= 94, f"{len(ours)} modules: which of them does a load not use?"

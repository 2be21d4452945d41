"""Runs mutmut on a copy of the tree that holds one room's configuration."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.rooms import Room

ROOT = Path(__file__).resolve().parents[2]
# Messages of errors are what tests/errors compares; they decide nothing.
_CONFIGURATION = """\
[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
do_not_mutate_patterns = ['^\\s*raise ']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
also_copy = ["conftest.py", "docs"]
use_git_change_detection = false
track_dependencies = false
timeout_multiplier = 3.0
timeout_constant = 5.0

[tool.pytest.ini_options]
pythonpath = [".", "tests/conformance"]
addopts = "-q --strict-markers --import-mode=importlib"
markers = ["slow: ", "sampled: "]
"""
# Each mutant runs in a fork of a process that has run all tests: what those computed is forgotten.
_FORGETTING = """\
import functools, gc, sys

def pytest_configure():
    for name in [name for name in sys.modules if name.startswith("tests.")]:
        del sys.modules[name]
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()
"""
STATUS = {0: "survived", 1: "killed", 3: "killed", 5: "untested", 33: "untested"}


def prepare(room: Room, folder: Path) -> None:
    """Make the copy anew and let mutmut find its mutants and the tests that reach each function."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    files = [f"src/anydim/{pattern}" for pattern in room.files]
    text = _CONFIGURATION.format(files=json.dumps(files), tests=json.dumps(room.tests))
    (folder / "pyproject.toml").write_text(text, "utf-8")
    (folder / "conftest.py").write_text(_FORGETTING, "utf-8")
    done = _mutmut(folder, "run", "--max-children", "1", "no such mutant")
    if not outcomes(folder):
        raise SystemExit(f"mutmut made no mutants:\n{_last(done)}")


def sample(folder: Path, count: int, seed: int) -> list[str]:
    """Names of at most `count` mutants, drawn by a seed, or of all where `count` is 0."""
    names = sorted(outcomes(folder))
    return random.Random(seed).sample(names, min(count or len(names), len(names)))


def run(folder: Path, names: Sequence[str], processes: int) -> None:
    """Run the tests for each mutant; what comes of it is read by `outcomes`."""
    done = _mutmut(folder, "run", "--max-children", str(processes), *names)
    if all(outcomes(folder)[name] is None for name in names):
        raise SystemExit(f"mutmut ran no mutant:\n{_last(done)}")


def outcomes(folder: Path) -> dict[str, int | None]:
    """The exit code of the tests for each mutant, None where they have not run."""
    found: dict[str, int | None] = {}
    for path in folder.glob("mutants/src/**/*.meta"):
        found.update(json.loads(path.read_text("utf-8"))["exit_code_by_key"])
    return found


def difference(folder: Path, name: str) -> str:
    """What a mutant changes, as a unified diff."""
    return _mutmut(folder, "show", name).stdout


def _mutmut(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """The last lines of what a process printed."""
    return "\n".join(f"{done.stdout}\n{done.stderr}".rstrip().splitlines()[-30:])

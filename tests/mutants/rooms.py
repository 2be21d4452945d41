"""Which files are mutated, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """Patterns of files under `src/anydim`, and the tests that run for each mutant of them.

    A test of `pyproject.toml` cannot run: the copy of the tree has one of its own.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "sizes": Room(("sizes/*",), ("tests/unit/sizes",)),
    "rules": Room(
        ("compiler/passes/rules.py",),
        ("tests/unit/compiler/passes/test_rules.py", "tests/unit/compiler/passes/test_folding.py"),
    ),
    "in_place": Room(
        ("compiler/passes/in_place.py",), ("tests/unit/compiler/passes/test_in_place.py",)
    ),
    "verify": Room(("compiler/graph/verify*.py",), ("tests/unit/compiler/graph",)),
    "resolve": Room(
        ("lang/resolve/*",),
        (
            "tests/unit/lang",
            "--ignore=tests/unit/lang/test_highlight.py",
            "tests/errors/test_language_errors.py",
        ),
    ),
    "checks": Room(("runtime/checks.py",), ("tests/unit/runtime", "tests/errors/test_inputs.py")),
}

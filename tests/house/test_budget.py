"""Promise: each part of the tree keeps to its budget of lines (`budget.txt`).

A change that raises a budget gives the reason in its commit. `python -m tests.house.test_budget`
prints the lines of each part.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("budget.txt")
SUFFIXES = {".py", ".tc", ".md"}


def budgets() -> dict[str, int]:
    """The most lines of each part, by its path."""
    rows = (line.split() for line in FILE.read_text("utf-8").splitlines() if line[:1] != "#")
    return {path: int(most) for path, most in rows}


def lines_of(part: str) -> int:
    """Lines of text in a folder, without those of parts inside that have a budget of their own."""
    own = [ROOT / other for other in budgets() if other != part]
    path = ROOT / part
    files = [path] if path.is_file() else (f for f in path.rglob("*") if f.suffix in SUFFIXES)
    inner = [other for other in own if path in other.parents]
    return sum(
        len(file.read_text("utf-8").splitlines())
        for file in files
        if not any(other == file or other in file.parents for other in inner)
    )


@pytest.mark.parametrize("part", budgets())
def test_a_part_keeps_to_its_budget(part: str) -> None:
    assert lines_of(part) <= budgets()[part], f"{part}: raise its row of {FILE.name}, and say why"


def test_every_part_of_the_package_has_a_budget() -> None:
    listed = {Path(part).name for part in budgets() if part.startswith("src/anydim/")}
    there = {p.name for p in (ROOT / "src/anydim").iterdir() if p.suffix == ".py"}
    there |= {p.parent.name for p in (ROOT / "src/anydim").glob("*/__init__.py")}
    assert there - {"__init__.py", "__main__.py"} <= listed


if __name__ == "__main__":
    for each in budgets():
        print(each, lines_of(each))

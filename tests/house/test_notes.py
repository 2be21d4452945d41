"""Promise: notes of measurements are next to the code that they explain, short, and all listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ROOT / "src/anydim/compiler"
INDEX = COMPILER / "kernels/notes.md"
NOTES = sorted((ROOT / "src").rglob("*.md"))
MOST = 60_000  # bytes of all notes: a reader finishes them


def linked(path: Path) -> set[Path]:
    """The files that a page links to."""
    return {
        (path.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8"))
    }


def test_the_notes_are_short() -> None:
    assert sum(path.stat().st_size for path in NOTES) <= MOST


def test_the_index_lists_all_notes() -> None:
    assert linked(INDEX) | {INDEX} == set(NOTES)


@pytest.mark.parametrize("path", NOTES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_notes_exist(path: Path) -> None:
    assert all(target.exists() for target in linked(path))


@pytest.mark.parametrize("path", NOTES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_notes_name_exist(path: Path) -> None:
    """Names such as `rows/short_rows.py`: below the folder, its parent, the package or the tree."""
    for name in re.findall(r"`([a-z_0-9/]+(?:\.py|/))(?::[^`]*)?`", path.read_text("utf-8")):
        roots = (path.parent, path.parent.parent, INDEX.parent, ROOT / "src/anydim", COMPILER, ROOT)
        found = any((root / name).exists() for root in roots)
        assert found or any(path.parent.rglob(name.rstrip("/"))), f"{path}: {name}"

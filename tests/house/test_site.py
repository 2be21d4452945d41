"""Promise: the documentation's site has every page, and every decision a number of its own."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    assert {str(page) for page in PAGES} == named


def test_decisions_are_numbered_one_by_one() -> None:
    numbers = [page.name[:3] for page in PAGES if page.parent.name == "decisions"]
    assert numbers == [f"{number:03}" for number in range(1, len(numbers) + 1)]

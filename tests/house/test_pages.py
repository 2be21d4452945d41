"""Promise: an error names no file of docs/, which an installed package does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from anydim.base.pages import PAGES, Page

ROOT = Path(__file__).parents[2]
MAKERS = {
    "cli/page.py",
    "cli/report/settings_page.py",
    "base/settings.py",
}
"""Files whose texts are pages of docs/ themselves."""


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every text in a file but docstrings."""
    plain = {
        id(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in plain:
                yield node


def test_no_text_names_a_file_of_the_documentation() -> None:
    source = ROOT / "src/anydim"
    for path in source.rglob("*.py"):
        written = path.read_text("utf-8")
        if "docs/" in written and str(path.relative_to(source)) not in MAKERS:
            for text in texts(ast.parse(written)):
                assert "docs/" not in text.value, f"{path}:{text.lineno}: {text.value}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_the_pages_have_these_titles(page: Page) -> None:
    assert (ROOT / "docs" / page.path).read_text("utf-8").startswith(f"# {page.title}\n")
    assert page.title in str(page) and "docs/" not in str(page)

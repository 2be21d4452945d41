"""Promise: the README is short, its code prints what it shows, its links lead somewhere."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n^```text\n(.*?)^```$", README, re.DOTALL | re.MULTILINE
)
MOST_LINES, MOST_CODE = 160, 20


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_every_block_of_code_is_short_and_has_its_output_below() -> None:
    assert len(BLOCKS) == README.count("```python") == 2
    for code, _ in BLOCKS:
        assert len(code.splitlines()) <= MOST_CODE


def test_the_code_prints_what_is_shown(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code, printed in BLOCKS:
        exec(compile(code, "README.md", "exec"), names)
        assert capsys.readouterr().out == printed
    assert not list(tmp_path.iterdir())  # needs no file, leaves none


def test_links_and_pictures_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README)
    targets += re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(targets) > 20
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_anchors_lead_to_headings() -> None:
    for path, anchor in re.findall(r"\]\(([^)#:]+)#([^)]+)\)", README):
        headings = re.findall(r"^##+ (.+)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
        assert anchor in slugs, (path, anchor)


def test_the_figures_are_those_of_the_page_of_figures() -> None:
    """Both figures of a row stand together in a row of docs/figures.md."""
    page = (ROOT / "docs" / "figures.md").read_text("utf-8")
    known = [set(re.split(r"\s*\|\s*", line)) for line in page.splitlines() if line[:1] == "|"]
    table = README[README.index("## How fast it is") : README.index("## How it works")]
    rows = re.findall(r"^\| (.+) \| ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    assert len(rows) == 8
    for name, ours, theirs in rows:
        assert any({ours, theirs} <= cells for cells in known), name

"""Promise: the documentation's site has every page, works offline, and fits any window."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (400, 1100)  # pixels
MOST_BYTES = 650_000  # of the text of docs/: what a new page brings, an older one gives back
LINK = re.compile(r"\]\(([\w./-]+\.md)")


def test_every_page_is_in_the_navigation_or_on_the_development_page() -> None:
    configuration = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r"[\w./-]+\.md", configuration[configuration.index("\nnav:") :]))
    named |= set(LINK.findall((DOCS / "development.md").read_text("utf-8")))
    assert set(PAGES) == named


def test_the_text_of_the_pages_is_short() -> None:
    assert sum((DOCS / page).stat().st_size for page in PAGES) <= MOST_BYTES


def test_decisions_are_numbered_one_by_one() -> None:
    numbers = [page[10:13] for page in PAGES if page.startswith("decisions/")]
    assert numbers == [f"{number:03}" for number in range(1, len(numbers) + 1)]


def test_what_the_page_of_the_interface_names_can_be_imported() -> None:
    for name in re.findall(r"^::: ([\w.]+)", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE):
        assert pkgutil.resolve_name(name) is not None


def test_a_picture_has_two_variants_that_differ_in_colours_alone() -> None:
    pictures = sorted((DOCS / "images").glob("*-light.svg"))
    assert pictures
    for light in pictures:
        dark = light.with_name(light.name.replace("-light", "-dark"))
        texts = [re.sub("#[0-9a-f]{6}", "#", path.read_text("utf-8")) for path in (light, dark)]
        assert texts[0] == texts[1], light.name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site, built as `make docs` does: a link or an anchor that leads nowhere fails."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package}")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_made_of_its_own_files(site: pathlib.Path) -> None:
    made = re.compile(r"<(?:script|img|iframe|source)\b[^>]*?\bsrc=\"?([^\s\">]+)")
    styles = re.compile(r"<link\b[^>]*?\brel=\"?stylesheet\"?[^>]*?\bhref=\"?([^\s\">]+)")
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        for source in made.findall(text) + styles.findall(text):
            assert not re.match(r"(https?:)?//", source), f"{path.name} fetches {source}"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser")
def test_nothing_runs_out_of_a_page(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pages = [path.as_uri() for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    script = (ROOT / "tests/house/site_widths.js").read_text("utf-8")
    frame = '<!doctype html><body><iframe style="height: 900px; border: 0"></iframe>'
    known = f"const PAGES = {json.dumps(pages)}, WIDTHS = {json.dumps(WIDTHS)};"
    page = tmp_path / "widths.html"
    page.write_text(f"{frame}<script>{known}\n{script}</script>", "utf-8")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
        "--allow-file-access-from-files", "--virtual-time-budget=600000",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(r"<body>(\[.*\])</body>", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    rows = json.loads(found[1])
    assert len(rows) == len(pages) * len(WIDTHS)
    assert sum(row["tables"] for row in rows) > len(WIDTHS) * 50
    wide = [f"{row['url']} at {row['width']}: {row['found']}" for row in rows if row["found"]]
    assert not wide, "\n".join(wide)

"""Promise: a link between documents leads to a file of this tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    targets = _LINK.findall(_CODE.sub("", path.read_text("utf-8")))
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not missing


def test_files_that_the_architecture_names_exist() -> None:
    """A name may lack the folders before it: `entry.py`, `api/entry.py`."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"`((?!X_)[\w/]+\.(?:py|tc|md))`", text))
    folders = set(re.findall(r"`(\w[\w/]*)/`", text))
    assert len(names) > 100 and len(folders) > 30
    known = [f"/{path.relative_to(ROOT)}" for top in ("src", "tests", "release", "bench")
             for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]  # fmt: skip
    missing = {name for name in names | folders if not any(p.endswith(f"/{name}") for p in known)}
    assert not missing

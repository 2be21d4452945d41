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


PAGES = [
    path for path in DOCUMENTS if "decisions" not in path.parts and path.name != "CHANGELOG.md"
]


def test_files_that_documents_name_exist() -> None:
    """A name may lack the folders before it: `entry.py`, `api/entry.py`."""
    known = [f"/{path.relative_to(ROOT)}" for top in ("src", "tests", "release", "bench", "examples")
             for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]  # fmt: skip
    named: dict[str, Path] = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        pattern = (
            r"`((?!X_)[\w/]+\.(?:py|tc))`" if page.stem == "architecture" else r"`(\w+/[\w/]+\.py)`"
        )
        named |= dict.fromkeys(re.findall(pattern, text), page)
    assert len(named) > 150
    missing = {
        name: page for name, page in named.items() if not any(p.endswith(f"/{name}") for p in known)
    }
    assert not missing

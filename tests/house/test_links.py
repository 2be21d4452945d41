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

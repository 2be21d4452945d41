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


PAGES = [each for each in DOCUMENTS if not {"decisions", "CHANGELOG.md"} & {*each.parts}]
FOLDERS = ("src", "tests", "release", "bench", "examples")
_OWN = {"encoder/1/model.py"}  # files that a user makes


def test_files_that_documents_name_exist() -> None:
    """A name may lack the folders before it: `entry.py`, `api/entry.py`."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    known = "\n".join(f"/{path.relative_to(ROOT)}" for path in files) + "\n"
    named: dict[str, Path] = {}
    for page in PAGES:
        names = r"(?!X_)[\w/]+\.(?:py|tc)" if page.stem == "architecture" else r"\w+/[\w/]+\.py"
        named |= dict.fromkeys(re.findall(f"`({names})`", page.read_text("utf-8")), page)
    assert len(named) > 150
    missing = {name: page for name, page in named.items() if f"/{name}\n" not in known}
    assert missing.keys() <= _OWN, missing

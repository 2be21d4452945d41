"""Promise: the Python of a page runs as it stands there, block after block."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from anydim.program.profile.limits import Limits

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {  # the packages that each needs
    "profiling.md": (),
    "guides/scikit-learn.md": ("sklearn", "skl2onnx"),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in PAGES[page]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anydim.model.kept", lambda threads: Limits(threads, 1e18, 1e18))
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of changes to come
        for block in blocks:
            exec(compile(block, page, "exec"), names)

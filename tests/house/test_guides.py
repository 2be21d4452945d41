"""Promise: the Python of a page runs as it stands there, and prints what stands below it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from anydim.program.profile.limits import Limits

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {  # the packages that each needs
    "profiling.md": (),
    "guides/deployment.md": (),
    "guides/from-torch.md": ("torch", "onnxscript"),
    "guides/scikit-learn.md": ("sklearn", "skl2onnx"),
    "guides/troubleshooting.md": (),
}
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in PAGES[page]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    known = "anydim.program.profile.limits.kept"
    monkeypatch.setattr(known, lambda threads: Limits(threads, 1e18, ((1, 1e18),)))
    names: dict[str, object] = {}
    blocks = BLOCK.findall((DOCS / page).read_text("utf-8"))
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of changes to come
        for block, printed in blocks:
            capsys.readouterr()
            exec(compile(block, page, "exec"), names)
            if printed:
                assert capsys.readouterr().out == printed

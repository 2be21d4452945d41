"""Promise: the code of a page runs as it stands there, and prints what stands below it."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from anydim.runtime.program.profile.limits import Limits

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {  # the packages and the programs ("!cc") that each needs
    "guides/compile-and-call.md": (),
    "profiling.md": (),
    "guides/deployment.md": (),
    "guides/ragged.md": (),
    "guides/serving.md": (),
    "guides/from-torch.md": ("torch",),
    "guides/transformers.md": ("torch", "transformers"),
    "guides/scikit-learn.md": ("sklearn", "skl2onnx"),
    "guides/troubleshooting.md": (),
    "tutorials/first-definition.md": (),
    "tutorials/first-deployment.md": ("!cc", "!make"),
    "tutorials/first-model.md": (),
    "tutorials/first-recursion.md": (),
}
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```\n(?:^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)


def test_every_tutorial_is_run() -> None:
    tutorials = {str(path.relative_to(DOCS)) for path in DOCS.glob("tutorials/*.md")}
    assert tutorials and tutorials <= PAGES.keys()


def needs(name: str) -> None:
    """Skip the test where a package, or a program, is missing."""
    if not name.startswith("!"):
        pytest.importorskip(name)
    elif not shutil.which(name[1:]):
        pytest.skip(f"no {name[1:]}")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in PAGES[page]:
        needs(name)
    monkeypatch.chdir(tmp_path)
    known = "anydim.runtime.program.profile.limits.kept"
    monkeypatch.setattr(known, lambda threads: Limits(threads, 1e18, ((1, 1e18),)))
    names: dict[str, object] = {}
    blocks = BLOCK.findall((DOCS / page).read_text("utf-8"))
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of changes to come
        for language, block, printed in blocks:
            capsys.readouterr()
            if language == "sh":
                subprocess.run(block, shell=True, check=True)
            else:
                exec(compile(block, page, "exec"), names)
            if printed:
                assert capsys.readouterr().out == printed

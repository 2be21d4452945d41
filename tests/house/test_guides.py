"""Promise: the code of a page runs when pasted at Python's prompt, and prints what is below it."""

from __future__ import annotations

import code
import re
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

from anydim.runtime.program.profile.limits import Limits

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {  # the packages and the programs ("!cc") that each needs
    "index.md": ("torch",),
    "guides/command-line.md": (),
    "guides/compile-and-call.md": (),
    "profiling.md": (),
    "guides/deployment.md": (),
    "guides/ragged.md": (),
    "guides/serving.md": (),
    "guides/from-torch.md": ("torch",),
    "guides/transformers.md": ("torch", "transformers"),
    "guides/onnxruntime.md": ("onnxruntime",),
    "guides/scikit-learn.md": ("sklearn", "skl2onnx"),
    "guides/troubleshooting.md": (),
    "tutorials/first-definition.md": (),
    "tutorials/first-deployment.md": ("!cc", "!make"),
    "tutorials/first-language-model.md": (
        "safetensors",
        "tokenizers",
        "jinja2",
        "starlette",
        "uvicorn",
        "httptools",
        "openai",
    ),
    "tutorials/first-model.md": (),
    "tutorials/first-recursion.md": (),
}
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```\n(?:^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)


WRITTEN = [path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
           if "```python\n" in path.read_text("utf-8")]  # fmt: skip


class Prompt(code.InteractiveConsole):
    """Python's prompt: a blank line ends an indented block, and any error is raised."""

    def __init__(self, runs: bool = True) -> None:
        super().__init__({"__name__": "__main__"})
        self.runs = runs

    def paste(self, block: str) -> None:
        """Feed the lines of a block, then Enter until the prompt is back."""
        for line in block.splitlines():
            self.push(line)
        for _ in range(2):
            if self.buffer:
                self.push("")
        assert not self.buffer, f"the prompt waits for the end of:\n{block}"

    def runcode(self, code: types.CodeType) -> None:
        if self.runs:
            exec(code, self.locals)  # `InteractiveConsole.runcode` prints what is raised

    def showsyntaxerror(self, *_: object, **__: object) -> None:
        raise sys.exc_info()[1]  # type: ignore[misc]


def test_every_tutorial_and_guide_is_run() -> None:
    written = {str(path.relative_to(DOCS)) for path in WRITTEN if path.parent.parent == DOCS}
    known = {page for page in written if page.startswith(("tutorials/", "guides/"))}
    # these need a download
    downloads = {"guides/sentence-transformers.md", "guides/language-models.md"}
    assert known - PAGES.keys() == downloads


def needs(name: str) -> None:
    """Skip the test where a package, or a program, is missing."""
    if not name.startswith("!"):
        pytest.importorskip(name)
    elif not shutil.which(name[1:]):
        pytest.skip(f"no {name[1:]}")


TORCH = [page for page, names in PAGES.items() if "torch" in names]
"""Pages of tests/torch/test_guides.py."""


@pytest.mark.parametrize("page", sorted(PAGES.keys() - TORCH))
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, tmp_path, monkeypatch, capsys)


def run_page(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paste the blocks of a page in turn, in an empty folder, and compare what they print."""
    for name in PAGES[page]:
        needs(name)
    monkeypatch.chdir(folder)
    known = "anydim.runtime.program.profile.limits.read_limits"
    monkeypatch.setattr(known, lambda threads: Limits(threads, 1e18, ((1, 1e18),)))
    monkeypatch.setattr(sys, "displayhook", lambda value: None)
    prompt = Prompt()
    blocks = BLOCK.findall((DOCS / page).read_text("utf-8"))
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of changes to come
        for language, block, printed in blocks:
            capsys.readouterr()
            if language == "sh":
                subprocess.run(block, shell=True, check=True)
            else:
                prompt.paste(block)
            if printed:
                assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_can_be_pasted(page: Path) -> None:
    prompt = Prompt(runs=False)
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        prompt.paste(block)


@pytest.mark.parametrize(
    "block",
    ["class A:\n    x = 1\n\n    y = 2\n", "for i in ():\n    pass\nprint(1)\n", "f((1,\n"],
    ids=["a blank line inside", "no blank line after", "no end"],
)
def test_what_the_prompt_refuses(block: str) -> None:
    with pytest.raises((SyntaxError, AssertionError)):
        Prompt(runs=False).paste(block)

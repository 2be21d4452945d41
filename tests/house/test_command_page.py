"""Promise: the commands of the guide to the command line run as written."""

from __future__ import annotations

import pathlib
import re

import numpy
import pytest
from click.testing import CliRunner

from anydim.cli.app import main

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "guides" / "command-line.md").read_text("utf-8")
QUICK = {"bench": ["--rounds", "1", "--seconds", "0.01"], "check": ["--samples", "3"]}


def commands(title: str) -> list[str]:
    """The commands of a section, in order."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return re.findall(r"^    anydim (.*)$", found[1], re.MULTILINE)


def test_the_commands_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (DOCS / "guides" / "compile-and-call.md").read_text("utf-8")
    encoder = re.search(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert encoder is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(encoder[1], "compile-and-call.md", "exec"), {})
    ids, mask = numpy.zeros((2, 5), numpy.int64), numpy.ones((2, 5), numpy.int64)
    numpy.savez(tmp_path / "ids.npz", input_ids=ids, attention_mask=mask)
    lines = [*commands("From an ONNX file"), *commands("Save, then load"), *commands("Write C")]
    assert len(lines) == 18
    for line in lines:
        words = line.split()
        result = CliRunner().invoke(main, words + QUICK.get(words[0], []))
        assert result.exit_code == 0, f"{line}\n{result.output}"
    assert numpy.load(tmp_path / "out.npz")["hidden"].shape == (2, 5, 16)
    for made in ("plan.svg", "trace.json", "trace.html", "encoder/Makefile"):
        assert (tmp_path / made).exists(), made

"""Promise: the Python of the guide runs as it is written, and prints what the guide says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import anydim.ort

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "onnxruntime.md"
TEXT = GUIDE.read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)


def test_the_python_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert len(BLOCKS) == 5
    try:
        for block in BLOCKS:
            exec(compile(block, "onnxruntime.md", "exec"), names)
    finally:
        anydim.ort.uninstall()
    printed = capsys.readouterr().out
    assert len(PRINTED) == 2
    assert all(text in printed for text in PRINTED)
    inputs = {"input_ids": names["ids"], "attention_mask": names["mask"]}
    (result,) = names["session"].run(None, inputs)  # of the saved model
    assert type(names["session"]) is anydim.ort.InferenceSession
    assert (result == names["ids"] * names["mask"]).all()

"""Promise: the Python of the guide runs as it is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy
import pytest

import anydim.ort
from tests.house.test_readme import small_encoder

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "onnxruntime.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_the_python_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_encoder(tmp_path)
    monkeypatch.chdir(tmp_path)
    ids = numpy.arange(6).reshape(2, 3)
    names = {"ids": ids, "mask": numpy.ones_like(ids)}
    assert len(BLOCKS) == 4
    try:
        for block in BLOCKS:
            exec(compile(block, "onnxruntime.md", "exec"), names)
        assert sys.modules["onnxruntime"].InferenceSession is anydim.ort.InferenceSession
    finally:
        anydim.ort.uninstall()
    said = capsys.readouterr().out
    assert "('input_ids', 'tensor(int64)', ['batch', 'seq'])" in said
    assert "Required inputs (['attention_mask']) are missing" in said
    result = names["session"].run(None, {"input_ids": ids, "attention_mask": names["mask"]})[0]
    assert result.shape == (2, 3, 4)

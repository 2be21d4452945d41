"""Promise: the Python of the guide runs as it is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy
import onnx
import pytest
from onnx import TensorProto, helper

import anydim.ort

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "onnxruntime.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def small_encoder(folder: Path) -> None:
    """encoder.onnx with the inputs of the guide's model."""
    shape = ["batch", "seq"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name in ("input_ids", "attention_mask")
    ]
    table = numpy.arange(40, dtype=numpy.float32).reshape(10, 4)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"], name="look up"),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["mask"]),
        helper.make_node("Mul", ["x", "mask"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(table, "table"),
        onnx.numpy_helper.from_array(numpy.array([-1]), "last"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape, 4])]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, str(folder / "encoder.onnx"))


def test_the_python_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_encoder(tmp_path)
    monkeypatch.chdir(tmp_path)
    ids = numpy.arange(6).reshape(2, 3)
    names = {"ids": ids, "mask": numpy.ones_like(ids)}
    assert len(BLOCKS) == 5
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

"""Promise: the Python of the README, and its commands about saved models, run as written."""

from __future__ import annotations

import pathlib
import re

import numpy
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from anydim.cli.app import main

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
SAVING = re.search(r"### Save it.*?\n(.*?)###", README.read_text("utf-8"), re.DOTALL)
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


def small_encoder(folder: pathlib.Path) -> None:
    """encoder.onnx with the inputs that the README's model has."""
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


def test_the_python_of_the_readme_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_encoder(tmp_path)
    monkeypatch.chdir(tmp_path)
    random = numpy.random.default_rng(0)
    q, k, v = (random.standard_normal((2, n, 64), numpy.float32) for n in (5, 7, 7))
    names = {
        "ids": random.integers(0, 10, (2, 5)),
        "mask": numpy.ones((2, 5), numpy.int64),
        "q": q, "k": k, "v": v,
        "weights": random.standard_normal((4, 8), numpy.float32),
        "x": random.standard_normal((3, 2, 4), numpy.float32),
        "h0": random.standard_normal((2, 5), numpy.float32),
        "i2h": random.standard_normal((4, 5), numpy.float32),
        "h2h": random.standard_normal((5, 5), numpy.float32),
    }  # fmt: skip
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    assert names["out"].shape == (2, 5, 64)
    assert names["hidden"].shape == (3, 2, 5)
    printed = capsys.readouterr().out
    assert "bytes" in printed
    assert "agree" in printed


def test_the_commands_about_saved_models_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_encoder(tmp_path)
    monkeypatch.chdir(tmp_path)
    ids, mask = numpy.zeros((2, 5), numpy.int64), numpy.ones((2, 5), numpy.int64)
    numpy.savez(tmp_path / "ids.npz", input_ids=ids, attention_mask=mask)
    assert SAVING is not None
    commands = re.findall(r"^    anydim (.*)$", SAVING[1], re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "compile", "inspect", "run", "plan", "bench",
    ]  # fmt: skip
    for command in commands:
        words = command.split()
        if words[0] == "bench":
            words += ["--rounds", "1", "--seconds", "0.01"]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
    assert numpy.load(tmp_path / "out.npz")["y"].shape == (2, 5, 4)

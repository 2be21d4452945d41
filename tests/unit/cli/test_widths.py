"""Promise: what a command prints fits 100 columns, whatever names and how many dims a model has."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, save

import anydim as ad
from anydim.base import settings
from anydim.cli.app import main
from anydim.runtime.program.profile.limits import Limits

DIMS = [f"a_dim_with_a_rather_long_name_{number}" for number in range(9)]
LONG = "/encoder/blocks.0/" + "a_module_with_a_rather_long_name/" * 4
SIZES = ",".join(f"{name}={number}" for number, name in enumerate(DIMS, 2))


def _model(path: Path) -> None:
    inputs = [
        helper.make_tensor_value_info(f"{LONG}x{name}", TensorProto.FLOAT, [name, 3])
        for name in DIMS
    ]
    nodes = [
        helper.make_node("Softmax", [each.name], [f"{each.name}/s"], name=f"{each.name}/Softmax")
        for each in inputs
    ]
    gathered = [each.output[0] for each in nodes]
    nodes.append(helper.make_node("Concat", gathered, [f"{LONG}y"], name=f"{LONG}Concat", axis=0))
    nodes.append(helper.make_node("Neg", [f"{LONG}y"], [f"{LONG}z"], name=f"{LONG}Neg"))
    nodes.append(helper.make_node("MatMul", [f"{LONG}z", "w"], [f"{LONG}o"], name=f"{LONG}MatMul"))
    output = helper.make_tensor_value_info(f"{LONG}o", TensorProto.FLOAT, [None, 5])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [3, 5], numpy.ones(15))
    graph = helper.make_graph(nodes, "long", inputs, [output], [weights])
    opsets = [helper.make_opsetid("", 18)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("widths")
    _model(path / "long.onnx")
    model = ad.compile(path / "long.onnx", strategy="generic")
    model.save(path / "long.anydim")
    with model.record(path / "sizes.jsonl"):
        for rows in (1, 2, 1000):
            model(**{each.name: numpy.ones((rows, 3), numpy.float32) for each in model.inputs})
    return path


@pytest.mark.parametrize("line", [
    "inspect long.onnx", "inspect long.anydim", "plan long.onnx --at SIZES", "devices",
    "plan long.onnx --at SIZES --launches", "memory long.onnx --at SIZES", "explain long.onnx",
    "explain long.onnx --details", "explain long.anydim --kernel *", "run long.onnx --at SIZES",
    "profile long.onnx --at SIZES --repeat 1", "trace long.onnx --at SIZES", "cache",
    "bench long.onnx --at SIZES --seconds 0.01 --rounds 1", "check long.onnx --samples 2",
    "profile sizes.jsonl --model long.onnx",
    "tune long.onnx --profile sizes.jsonl --minutes 0.001",
])  # fmt: skip
def test_lines_fit(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(
        "anydim.runtime.program.profile.limits.read_limits",
        lambda threads: Limits(threads, 1e18, ((1, 1e18),)),
    )
    with settings.override(keep_programs=True):  # the program of the file is compiled once
        done = CliRunner().invoke(main, line.replace("SIZES", SIZES).split(), prog_name="anydim")
    assert done.exit_code == 0, done.output
    widest = max(done.stdout.split("\n"), key=len)
    assert done.stdout and len(widest) <= 100, widest

"""Promise: a check finds a wrong size rule, a wrong element type and a wrong kernel.

Each fault is planted where the compiler's own evaluator follows it, the kernel's excepted: only an
oracle that shares nothing with the compiler sees it.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import float32
from anydim.cli.app import main
from anydim.compiler.frontends.onnx.operators.table import OPERATORS
from anydim.compiler.targets.functions import expansions
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import typing
from tests.interpreter.oracle import interpreter


def checked(line: str) -> str:
    """The output of `anydim check`, which exits with 1."""
    result = CliRunner().invoke(main, ["check", *line.split()])
    assert result.exit_code == 1, result.output
    assert max(map(len, result.stdout.splitlines())) <= 100
    return result.stdout


def code(line: str) -> int:
    """What `anydim check` exits with."""
    return CliRunner().invoke(main, ["check", *line.split()]).exit_code


def model(path: Path, nodes: list[onnx.NodeProto]) -> str:
    """A file with one input x [n, m] and one output y."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "planted", inputs, outputs)
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        ).SerializeToString()
    )
    return str(path)


def test_a_wrong_size_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flatten takes its axis from the other end; sizes that are 1 or equal hide it."""

    def wrong(call):
        return call.emit("flatten", call.input(0), axis=1 - call.attribute("axis", 1))

    nodes = [helper.make_node("Flatten", ["x"], ["y"], axis=0)]
    line = f"{model(tmp_path / 'flat.onnx', nodes)} --dim n=0..40 --dim m=0..40 --samples 12"
    assert code(line) == 0
    monkeypatch.setitem(OPERATORS, "Flatten", wrong)
    assert code(f"{line} --against evaluator") == 0
    text = checked(line)
    assert "against onnx" in text and "output 'y' at n = " in text and "the shape is [" in text


@pytest.mark.parametrize("loop", [False, True], ids=["statement", "loop"])
def test_a_wrong_element_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: bool) -> None:
    """The common type of float64 and float32 is float32."""
    body = "for t in N { y(t) = x(t) + z(t) }" if loop else "y(t) = x(t) + z(t)"
    (tmp_path / "add.tc").write_text(
        f"def add(double(N) x, float(N) z) -> (y) {{ {body} }}", "utf-8"
    )
    line = f"{tmp_path / 'add.tc'} --samples 8"
    assert code(line) == 0
    monkeypatch.setattr(typing, "_promote", lambda left, right: float32)
    assert code(f"{line} --against evaluator") == 0
    definition = parse_definition(text := (tmp_path / "add.tc").read_text("utf-8"))
    x, z = numpy.ones(3), numpy.ones(3, numpy.float32)
    report = ad.define(text).add.model(x, z).check(8, against=interpreter(definition, ["y"]))
    assert not report.ok
    text = str(report)
    assert "against the interpreter" in text and "output 'y' at N = " in text
    assert "the element type is float32, expected float64" in text


def test_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of tanh is off by a little, for both ways into the compiler."""
    right = expansions.FLOATING["tanh"]

    def wrong(x, *rest):
        made = right(x, *rest)
        return made + made * 0.0005

    monkeypatch.setitem(expansions.FLOATING, "tanh", wrong)
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    (tmp_path / "curve.tc").write_text(
        "def curve(float(N) x) -> (y) { y(i) = tanh(x(i)) }", "utf-8"
    )
    with settings.override(cache_dir=str(tmp_path / "cache")):
        for source in (model(tmp_path / "tanh.onnx", nodes), str(tmp_path / "curve.tc")):
            text = checked(f"{source} --samples 8")
            assert "output 'y' at " in text and "error 0.0005, and numpy's in the" in text


def test_without_a_fault_the_three_agree(tmp_path: Path) -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    made = ad.compile(model(tmp_path / "tanh.onnx", nodes))
    report = made.check(samples=8)
    assert report.ok and report.types == {"y": "float32"}
    assert numpy.isfinite(report.worst_error)

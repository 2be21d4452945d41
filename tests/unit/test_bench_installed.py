"""Promise: a benchmark leaves out engines that are not installed, and names what it needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import bench
from bench.chart import IMAGES, THEMES, svg

INSTALL = "run: pip install -e '.[demo]'"


@pytest.mark.parametrize("name", ["onnxruntime", "tokenizers", "safetensors.numpy", "psutil"])
def test_what_a_benchmark_needs_is_named(name: str) -> None:
    said = bench.told(ModuleNotFoundError(name=name))
    assert f"the package {name} is not installed" in said and INSTALL in said


def test_other_errors_stay() -> None:
    assert not bench.told(ModuleNotFoundError(name="anydim.nothing"))
    assert not bench.told(ValueError("a"))


@pytest.mark.parametrize("program", ["chart", "six"])
def test_there_is_no_traceback(program: str) -> None:
    hidden = "import sys; sys.modules['tokenizers'] = None; import runpy, bench; "
    code = f"{hidden}runpy.run_module('bench.{program}', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the package tokenizers is not installed")
    assert len(done.stderr.splitlines()) == 1


def test_a_chart_without_one_of_the_engines() -> None:
    report = json.loads((IMAGES / "minilm.json").read_text("utf-8"))
    for row in report["rows"]:
        del row["ratio"]["openvino"]
    drawn = svg(report, THEMES["light"])
    assert "anydim takes" in drawn and "OpenVINO" not in drawn

"""Promise: an unchanged program's `import onnxruntime` means anydim once it is told so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ort import tiny

PROGRAM = """
import sys
import importlib.metadata, importlib.util
import numpy
import onnxruntime as rt
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
import onnxruntime.capi.onnxruntime_pybind11_state

session = InferenceSession(sys.argv[1], SessionOptions())
try:
    session.run(None, {"x": numpy.zeros(3, numpy.float32)})
except InvalidArgument:
    print("caught")
except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
    print("another")
assert C.OrtValue is OrtValue or C.OrtValue is not None
assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.metadata.version("onnxruntime")
assert importlib.util.find_spec("anydim.ort").origin[:-11] in rt.__file__
print(session.run(["y"], {"x": numpy.zeros((1, 3), numpy.float32)})[0].tolist())
print(type(session).__module__, rt.get_build_info()[:6], __name__, sys.argv[1:])
"""
EXPECTED = ["caught", "[[1.0, 2.0, 3.0]]", "anydim.ort.session anydim __main__"]


def run(*words: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "add.onnx").write_bytes(tiny.ADD)
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    return tmp_path


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"]])
def test_a_program_runs_unchanged(folder: Path, words: list[str]) -> None:
    lines = run("-m", "anydim.ort", *words, "add.onnx", "more", folder=folder)
    assert lines == [*EXPECTED[:2], f"{EXPECTED[2]} ['add.onnx', 'more']"]


def test_without_onnxruntime_too(folder: Path) -> None:
    hidden = "import sys\nsys.path[:] = [p for p in sys.path if not p.endswith('no')]\n"
    script = f"""{hidden}
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
def blind(name, *more):
    return None if name.split('.')[0] == 'onnxruntime' else find(name, *more)
importlib.machinery.PathFinder.find_spec = blind
import anydim.ort
anydim.ort.install()
import onnxruntime
assert onnxruntime.InferenceSession is anydim.ort.InferenceSession
try:
    import onnxruntime.quantization
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run("-c", script, folder=folder) == ["onnxruntime.quantization"]


def test_tools_of_the_installed_package_run_on_it(folder: Path) -> None:
    script = """
import anydim.ort
anydim.ort.install()
from onnxruntime.quantization import QuantType, quantize_dynamic
quantize_dynamic("add.onnx", "quantised.onnx", weight_type=QuantType.QInt8)
import onnxruntime
print(type(onnxruntime.InferenceSession("quantised.onnx")).__module__)
"""
    assert run("-c", script, folder=folder)[-1:] == ["anydim.ort.session"]


def test_install_can_be_taken_back(folder: Path) -> None:
    script = """
import onnxruntime
theirs = onnxruntime.InferenceSession
import anydim.ort
anydim.ort.install("onnxruntime")
anydim.ort.install()
import onnxruntime
assert onnxruntime.InferenceSession is anydim.ort.InferenceSession
from anydim.base.peer import peer_module
assert peer_module().InferenceSession is theirs
anydim.ort.uninstall()
anydim.ort.uninstall()
import onnxruntime
print(onnxruntime.InferenceSession is theirs)
"""
    assert run("-c", script, folder=folder) == ["True"]


def test_the_fallback_finds_the_installed_package_behind_the_stand_in(folder: Path) -> None:
    script = """
import anydim.ort
anydim.ort.install(fallback="onnxruntime")
import onnxruntime, warnings, sys
sys.path.insert(0, ".")
from anydim.base.peer import peer_module
peer = peer_module()
print(peer.InferenceSession.__module__, onnxruntime.InferenceSession.__module__)
print(type(peer.InferenceSession("add.onnx").get_inputs()[0]).__module__)
import onnxruntime.capi
print(onnxruntime.capi.InferenceSession.__module__)
"""
    assert run("-c", script, folder=folder) == [
        "onnxruntime.capi.onnxruntime_inference_collection anydim.ort.session",
        "onnxruntime.capi.onnxruntime_pybind11_state",
        "anydim.ort.session",
    ]


@pytest.mark.parametrize("words", [[], ["-m"], ["--fallback=tensorrt", "program.py"]])
def test_words_that_name_nothing(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anydim.ort", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "anydim.ort" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.py"], "nowhere.py: no such file"),
        (["-m", "nowhere"], "no module named nowhere"),
        (["-m", "nowhere.at.all"], "no module named nowhere.at.all"),
    ],
)
def test_a_program_that_there_is_not(folder: Path, words: list[str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anydim.ort", *words],
        capture_output=True, text=True, cwd=folder, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, f"python -m anydim.ort: {told}\n")

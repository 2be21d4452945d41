"""Promise: a cache folder that cannot be used costs time and one warning a process, no more."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from tests.errors.cases import NO_BYTECODE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="permissions are those of Linux")

_SCRIPT = """
    import ctypes, os, pwd, resource, signal, sys, warnings
    if os.geteuid() == 0:  # without the right to pass by permissions, as any other user
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, none) == 0
    said = []
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: said.append(str(message))
    import numpy, anydim as ad, anydim.ort
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    {begin}
    def right(call):
        for n in (0, 1, 7):
            x = numpy.random.default_rng(n).standard_normal((n, 5)).astype(numpy.float32)
            want = numpy.exp(x)
            want /= want.sum(axis=1, keepdims=True)
            assert numpy.allclose(call(x), want, atol=1e-6), n
    for strategy in ("generic", "exact", "adaptive(after=2, most=1)"):
        model = ad.compile("m.onnx", strategy=strategy)
        for _ in range(8):
            right(lambda x: model(x=x)["y"])
    import anydim.compiler.variants.serving
    anydim.compiler.variants.serving.ledger("x").tuned_schedules(1)
    session = anydim.ort.InferenceSession("m.onnx")
    right(lambda x: session.run(None, {{"x": x}})[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    model.save("m.anydim")
    right(lambda x: ad.load("m.anydim")(x=x)["y"])
    for each in said:
        print(each)
    print("warnings:", len(said))
"""


def run(folder: Path, begin: str = "", **more: str) -> list[str]:
    """What a process warns of that uses the cache in all ways there are, and is right."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
         folder / "m.onnx")  # fmt: skip
    known = {name: value for name, value in os.environ.items() if not name.startswith("ANYDIM_")}
    given = {**known, **NO_BYTECODE, "ANYDIM_CACHE_DIR": str(folder / "cache"), **more}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_SCRIPT).format(begin=begin)], cwd=folder,
        env={name: value for name, value in given.items() if value}, text=True,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    assert last == f"warnings: {len(said)}"
    return said


def mode(bits: int) -> Callable[[Path], None]:
    return lambda folder: (folder / "cache").mkdir(bits)


def a_file(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no folder", "utf-8")

    return make


def a_link(to: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "cache").symlink_to(folder / to)


def locked(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "cache").mkdir()
        (folder / "cache" / name).mkdir(0o000)

    return make


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(mode(0o000), id="unsearchable"),
        pytest.param(mode(0o400), id="unsearchable, readable", marks=SLOW),
        pytest.param(mode(0o500), id="read-only", marks=SLOW),
        pytest.param(a_file("cache"), id="a file", marks=SLOW),
        pytest.param(a_link("absent/there"), id="dangling link", marks=SLOW),
        pytest.param(a_link("cache"), id="link to itself", marks=SLOW),
        pytest.param(a_file("cache/objects"), id="objects are a file", marks=SLOW),
        pytest.param(a_file("cache/models"), id="models are a file", marks=SLOW),
        pytest.param(locked("models"), id="models are locked", marks=SLOW),
        pytest.param(locked("variants.sqlite"), id="verdicts are a locked folder", marks=SLOW),
    ],
)
def test_a_folder_that_cannot_be_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(tmp_path)
    (said,) = run(tmp_path)
    assert str(tmp_path / "cache") in said and ("ANYDIM_CACHE_DIR" in said or "sqlite" in said)


def test_a_home_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(0o000)
    (said,) = run(tmp_path, ANYDIM_CACHE_DIR="", XDG_CACHE_HOME="", HOME=str(tmp_path / "home"))
    assert "Permission denied" in said


@SLOW
def test_a_home_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(0o500)
    home = str(tmp_path / "home" / "nobody")
    assert len(run(tmp_path, ANYDIM_CACHE_DIR="", XDG_CACHE_HOME="", HOME=home)) == 1


@SLOW
def test_no_home(tmp_path: Path) -> None:
    unknown = "pwd.getpwuid = {}.__getitem__"
    assert len(run(tmp_path, unknown, ANYDIM_CACHE_DIR="", XDG_CACHE_HOME="", HOME="")) == 1


@SLOW
@pytest.mark.parametrize("name", ["x" * 300, "x/" * 2500], ids=["name", "path"])
def test_a_name_that_is_too_long(tmp_path: Path, name: str) -> None:
    (said,) = run(tmp_path, ANYDIM_CACHE_DIR=str(tmp_path / name))
    assert "too long" in said


def test_a_full_disk(tmp_path: Path) -> None:
    """No file may grow beyond 512 bytes: what a full disk looks like to whoever writes."""
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit({}, (512, most))"
    (tmp_path / "long.py").write_text("VALUES = 'x" + 1000 * "y" + "'", "utf-8")
    (said,) = run(tmp_path, limit.format("resource.RLIMIT_FSIZE") + "; import long")
    assert "File too large" in said
    assert not (tmp_path / "__pycache__").exists()  # nor is bytecode of the tree cut


@SLOW
def test_a_folder_that_may_not_be_listed_is_used(tmp_path: Path) -> None:
    mode(0o300)(tmp_path)
    assert run(tmp_path) == []
    os.chmod(tmp_path / "cache", 0o700)
    assert {path.name for path in (tmp_path / "cache").iterdir()} >= {"objects", "models"}

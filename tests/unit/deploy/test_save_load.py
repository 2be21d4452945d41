"""Promise: a loaded model is the compiled one: results bit by bit, plans, memory and errors."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.cores import usual_cores
from anydim.runtime.cpu import this_level
from tests.models.building import graph, node
from tests.models.building import model as onnx_model
from tests.unit.deploy.kinds import KINDS, Inputs

X86 = this_level().architecture == "x86_64"
V2 = "x86-64-v2" if X86 else "aarch64"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name, kind in KINDS.items():
        ad.compile(kind.build()).save(folder / f"{name}.anydim", ["native", V2])
    return folder


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Equal bit by bit."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes()
        for k in a
    )


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_compiled_model(name: str, saved: Path) -> None:
    model, loaded = ad.compile(KINDS[name].build()), ad.load(saved / f"{name}.anydim")
    assert loaded.level.name == "native"
    for inputs in KINDS[name].inputs():
        assert same(loaded(**inputs), model(**inputs))
    assert (loaded.name, loaded.dims) == (model.name, model.dims)
    assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
    assert str(loaded.memory) == str(model.memory)
    assert loaded.plan(n=5) == model.plan(n=5)
    assert loaded.explain(details=True) == model.explain(details=True)
    assert model.name in repr(loaded)


@pytest.mark.parametrize("name", KINDS)
def test_a_lower_level_gives_nearly_the_same(name: str, saved: Path) -> None:
    model, loaded = ad.compile(KINDS[name].build()), ad.load(saved / f"{name}.anydim", level=V2)
    assert loaded.level.name == V2
    for inputs in KINDS[name].inputs():
        expected, got = model(**inputs), loaded(**inputs)
        tolerance = 2e-3 if name == "halves" else 2e-6
        for key, array in expected.items():
            np.testing.assert_allclose(got[key], array, tolerance, tolerance)


WRONG: list[tuple[str, Inputs]] = [
    ("encoder", {"ids": np.array([3, 31])}),
    ("encoder", {"ids": np.zeros(101, np.int64)}),
    ("encoder", {"ids": np.zeros((2, 2), np.int64)}),
    ("encoder", {"id": np.zeros(2, np.int64)}),
    ("looped", {"x": np.zeros(61, np.float32), "flag": np.array(True)}),
    ("detector", {"boxes": np.zeros((3, 4), np.float32), "scores": np.zeros(2, np.float32)}),
]


@pytest.mark.parametrize("name, inputs", WRONG)
def test_errors_are_the_same(name: str, inputs: Inputs, saved: Path) -> None:
    model, loaded = ad.compile(KINDS[name].build()), ad.load(saved / f"{name}.anydim")
    with pytest.raises(ad.UserError) as expected:
        model(**inputs)
    with pytest.raises(type(expected.value)) as caught:
        loaded(**inputs)
    assert str(caught.value) == str(expected.value)


def test_threads_are_kept(tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build(), threads=2)
    model.save(tmp_path / "two")
    loaded = ad.load(tmp_path / "two")
    assert loaded.executable.threads == min(2, usual_cores())
    for inputs in KINDS["encoder"].inputs():
        assert same(loaded(**inputs), model(**inputs))


@pytest.mark.parametrize("threads", [1, 2, 3, "auto"])
def test_threads_of_a_load(threads: int | str, tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build(), threads=3)
    model.save(tmp_path / "three")
    loaded = ad.load(tmp_path / "three", threads=threads)
    assert loaded.executable.threads == (min(3, usual_cores()) if threads == "auto" else threads)
    for inputs in KINDS["encoder"].inputs():
        assert same(loaded(**inputs), model(**inputs))
    assert pickle.loads(pickle.dumps(loaded)).executable.threads == loaded.executable.threads


def test_more_threads_than_were_compiled(tmp_path: Path) -> None:
    ad.compile(KINDS["encoder"].build(), threads=2).save(tmp_path / "two")
    with pytest.raises(ad.OptionError) as caught:
        ad.load(tmp_path / "two", threads=3)
    assert str(caught.value) == (
        f"threads is 3, and {tmp_path / 'two'} was compiled for 2\n"
        "  compile with threads=3 before saving; a load may take fewer"
    )
    with pytest.raises(ad.OptionError, match="threads is 0"):
        ad.load(tmp_path / "two", threads=0)


def test_lists_of_arrays(tmp_path: Path) -> None:
    proto = onnx_model(graph(
        "pieces", ["x f[n]"], [node("s = SequenceConstruct(x, x)"),
                               node("y = SequenceInsert(s, x)")], ["y"],
    ))  # fmt: skip
    proto.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = 1
    model = ad.compile(proto)
    model.save(tmp_path / "lists")
    got = ad.load(tmp_path / "lists")(x=np.arange(3, dtype=np.float32))["y"]
    assert [part.tolist() for part in got] == [[0, 1, 2]] * 3


def test_the_same_model_makes_the_same_file(saved: Path, tmp_path: Path) -> None:
    for name, kind in KINDS.items():
        again = tmp_path / f"{name}.anydim"
        ad.compile(kind.build()).save(again, ["native", V2, "native"])
        assert again.read_bytes() == (saved / again.name).read_bytes()


@pytest.mark.skipif(not X86, reason="levels of x86-64")
def test_the_best_level_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anydim.deploy import load as loading

    model = ad.compile(KINDS["encoder"].build())
    names = ["x86-64-v2", "aarch64", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni"]
    model.save(tmp_path / "all", names)
    here = this_level()
    flags = {level.name: level.flags for level in ad.load(tmp_path / "all").levels}
    for name in ("x86-64-v2", "x86-64-v3"):
        machine = type(here)("m", "x86_64", flags[name])
        monkeypatch.setattr(loading, "this_level", lambda machine=machine: machine)
        assert ad.load(tmp_path / "all").level.name == name
    machine = type(here)("m", "x86_64", flags["x86-64-v2"] - {"popcnt"})
    monkeypatch.setattr(loading, "this_level", lambda: machine)
    with pytest.raises(ad.ArtefactError, match="x86-64-v2 needs 'popcnt'"):
        ad.load(tmp_path / "all")
    with pytest.raises(
        ad.ArtefactError, match="it is for 'aarch64' on linux, this is 'x86_64' on linux"
    ):
        ad.load(tmp_path / "all", level="aarch64")


def test_a_level_that_is_not_in_the_file(saved: Path) -> None:
    with pytest.raises(ad.OptionError, match="no code for 'x86-64-v9'"):
        ad.load(saved / "encoder.anydim", level="x86-64-v9")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build())
    for path, targets, expected in (
        (tmp_path, "native", "cannot be written"),
        (tmp_path / "none" / "file", "native", "No such file"),
        (tmp_path / "file", "x86-64-v7", "there is no processor"),
        (tmp_path / "file", [], "no target"),
    ):
        with pytest.raises(ad.OptionError, match=expected):
            model.save(path, targets)
    assert list(tmp_path.iterdir()) == []


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        blocked = ("llvmlite", "onnx", "rich", "click", "ml_dtypes", "islpy")
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
import pathlib
import numpy
import anydim
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.glob("*.anydim")):
    model = anydim.load(path)
    cases = numpy.load(folder / f"{path.stem}.npz")
    for number in range(int(cases["count"])):
        names = [n for n in cases if n.startswith(f"{number}/in/")]
        got = model(**{n.split("/")[2]: cases[n] for n in names})
        for name, array in got.items():
            assert array.tobytes() == cases[f"{number}/out/{name}"].tobytes(), (path, number, name)
    assert model.plan(n=3).launches and str(model.memory) and model.explain(details=True)
    print(path.stem, int(cases["count"]))
unused = ("anydim.compiler.kernels", "anydim.compiler.targets")
assert not [m for m in sys.modules if m.startswith(unused)]
try:
    anydim.compile(b"")
except Exception as error:
    print("no compiler:", str(error).splitlines()[0])
"""


def test_a_process_without_compiler(saved: Path) -> None:
    for name, kind in KINDS.items():
        model, arrays = ad.compile(kind.build()), {}
        cases = list(kind.inputs())
        for number, inputs in enumerate(cases):
            arrays |= {f"{number}/in/{key}": value for key, value in inputs.items()}
            arrays |= {f"{number}/out/{key}": value for key, value in model(**inputs).items()}
        np.savez(saved / f"{name}.npz", count=len(cases), **arrays)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(saved)], env=environment, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*sorted(KINDS), "no"]


def test_without_proc(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anydim.deploy import load as loading

    unknown = replace(this_level(), flags=frozenset())
    monkeypatch.setattr(loading, "this_level", lambda: unknown)
    path = saved / "encoder.anydim"
    with pytest.raises(ad.ArtefactError) as caught:
        ad.load(path)
    assert str(caught.value) == (
        f"{path}: the features of this processor are unknown, as /proc/cpuinfo cannot be read\n"
        "  mount /proc, which containers have by default"
    )

"""Promise: a source that was compiled before is loaded, whatever it depends on is unchanged, and
one byte of that, or an argument, or a setting, has it compiled anew."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.api import program_cache
from anydim.api.program_cache import path_of_parts
from anydim.base import read_files, settings
from anydim.base.cache import DiskCache, package_version
from anydim.base.reports import internal
from anydim.compiler.variants import strategies
from anydim.deploy import container
from anydim.ort import InferenceSession
from tests.caches import empty_cache

SIZES = (0, 1, 3, 17)
WEIGHTS = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
X = numpy.linspace(-1, 1, 15, dtype=numpy.float32).reshape(5, 3)


def model_of(weights: numpy.ndarray = WEIGHTS, batch: str = "n") -> onnx.ModelProto:
    """y = exp(x @ w)."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Exp", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    folder = empty_cache(tmp_path / "cache")
    with settings.override(cache_dir=folder, use_cache=True, keep_programs=True):
        yield tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "small.onnx"
    onnx.save(model_of(), found)
    return found


def was_loaded(model: ad.Model) -> bool:
    return "load" in model.report.seconds


def check(model: ad.Model, weights: numpy.ndarray = WEIGHTS) -> None:
    for size in SIZES:
        x = numpy.random.default_rng(size).standard_normal((size, 3)).astype(numpy.float32)
        wanted = numpy.exp(x.astype(float) @ weights)
        assert numpy.allclose(model(x=x)["y"], wanted, rtol=1e-5)


def test_the_second_time_is_a_load_with_the_same_bits(path: Path) -> None:
    first, second = ad.compile(path), ad.compile(path)
    assert (was_loaded(first), was_loaded(second)) == (False, True)
    assert first(x=X)["y"].tobytes() == second(x=X)["y"].tobytes()
    check(second)


def test_bytes_and_copies_of_a_file_are_found_by_their_contents(path: Path) -> None:
    ad.compile(path)
    other = path.parent / "elsewhere" / path.name
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    assert was_loaded(ad.compile(other))
    data = path.read_bytes()
    assert not was_loaded(ad.compile(data))
    assert was_loaded(ad.compile(bytearray(data)))


def built(weights: numpy.ndarray = WEIGHTS, most: int = 64, name: str = "small") -> ad.Builder:
    """y = exp(x @ w)."""
    g = ad.Builder(name)
    x = g.input("x", ad.float32, (g.dim("n", 0, most), 3))
    g.output("y", g.exp(g.matmul(x, g.constant(weights))))
    return g


def test_a_builder_is_found_by_its_graph() -> None:
    ad.compile(built())
    found = ad.compile(built())
    assert was_loaded(found)
    check(found)
    assert was_loaded(ad.compile(built().graph()))
    last = WEIGHTS.copy()
    last[-1, -1] += 1
    for other in (built(last), built(most=63), built(name="other")):
        assert not was_loaded(ad.compile(other))
    check(ad.compile(built(last)), last)


def test_a_builder_that_grows_after_it_was_compiled() -> None:
    """What a loaded model says of its graph is of the graph that was compiled."""
    ad.compile(built())
    g = built()
    found = ad.compile(g)
    g.output("z", g.exp(g.constant(WEIGHTS)))
    assert was_loaded(found)
    assert found.graph.outputs == ("y",)


def test_a_proto_is_found_by_its_message() -> None:
    ad.compile(model_of())
    found = ad.compile(model_of())
    assert was_loaded(found)
    check(found)
    assert not was_loaded(ad.compile(model_of(WEIGHTS + 1)))


def test_a_definition_is_found_in_another_process(cache: Path) -> None:
    script = (
        "import sys, numpy, anydim as ad\n"
        "f = ad.define('def scaled(float(N) x) -> (y) { y(i) = x(i) * 3.0 }').scaled\n"
        "print(f(numpy.ones(5, 'f4')).sum(), 'anydim.api.compile_source' in sys.modules)"
    )
    known = {"ANYDIM_CACHE_DIR": str(cache), "ANYDIM_KEEP_PROGRAMS": "1"}
    said = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True,
            env={**os.environ, **known},
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert said == [["15.0", "True"], ["15.0", "False"]]


@pytest.mark.parametrize("same_times", [False, True])
def test_a_changed_byte_of_the_file(path: Path, same_times: bool) -> None:
    """Also with the size and the times that the file had before."""
    ad.compile(path)
    about = path.stat()
    onnx.save(model_of(WEIGHTS + 1), path)
    if same_times:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size
    changed = ad.compile(path)
    assert not was_loaded(changed)
    check(changed, WEIGHTS + 1)
    assert was_loaded(ad.compile(path))


def test_external_data(tmp_path: Path) -> None:
    path, data = tmp_path / "outside.onnx", tmp_path / "outside.bin"
    onnx.save(
        model_of(), path, save_as_external_data=True, location=data.name, size_threshold=0
    )  # fmt: skip
    ad.compile(path)
    found = ad.compile(path)
    assert was_loaded(found)
    check(found)
    data.write_bytes((WEIGHTS * 2).tobytes())
    changed = ad.compile(path)
    assert not was_loaded(changed)
    check(changed, WEIGHTS * 2)
    data.unlink()
    with pytest.raises(ad.ModelError, match="cannot be opened"):
        ad.compile(path)


def test_a_touched_file_is_the_same_file(path: Path) -> None:
    ad.compile(path)
    os.utime(path, ns=(1, 1))
    assert was_loaded(ad.compile(path))


def test_a_file_that_was_digested_long_after_it_was_written_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ad.compile(path)
    monkeypatch.setattr(read_files, "CLOCK_NS", -(10**12))
    monkeypatch.setattr(read_files.FileRead, "of", None)
    assert was_loaded(ad.compile(path))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("options", [
    {"dims": {"n": (0, 64)}}, {"dims": {"n": 3}}, {"threads": 2}, {"precision": "fast"},
    {"on_overflow": "grow", "dims": {"n": (1, 4)}},
])  # fmt: skip
def test_another_argument_is_another_program(path: Path, options: dict) -> None:
    ad.compile(path, threads=1) if "threads" in options else ad.compile(path)
    assert not was_loaded(ad.compile(path, **options))
    assert was_loaded(ad.compile(path, **options))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("knobs", [
    {"winograd": False}, {"layout": "channels_first"}, {"vector_bits": 128},
    {"most_nodes": 99_999},
])  # fmt: skip
def test_another_setting_is_another_program(path: Path, knobs: dict) -> None:
    ad.compile(path)
    with settings.override(**knobs):
        assert not was_loaded(ad.compile(path))
        assert was_loaded(ad.compile(path))


def test_another_version_is_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ad.compile(path)
    monkeypatch.setattr(program_cache, "package_version", lambda: "another")
    assert not was_loaded(ad.compile(path))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("knobs", [
    {"use_cache": False}, {"keep_programs": False}, {"verify": True}, {"target": "c"},
])  # fmt: skip
def test_what_is_compiled_every_time(path: Path, knobs: dict) -> None:
    if "target" in knobs:
        pytest.importorskip("shutil").which("cc") or pytest.skip("needs a C compiler")
    with settings.override(**knobs):
        assert [was_loaded(ad.compile(path)) for _ in range(2)] == [False, False]


def test_without_descriptors_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's files cannot be listed then, nor a process be started."""

    def fails(*given: object) -> Any:
        raise OSError(24, "Too many open files")

    g = ad.Builder("small")
    g.output("y", g.input("x", ad.float32, (g.dim("n"),)) * 2.0)
    ad.compile(g)
    monkeypatch.setattr("anydim.base.cache._code_files", fails)
    monkeypatch.setattr("platform.platform", fails)
    with pytest.raises(OSError):
        package_version()
    assert path_of_parts(["parts"]) is None
    assert sys.platform in internal(AssertionError()).hint
    assert not was_loaded(ad.compile(g))


def test_definitions_in_files(tmp_path: Path) -> None:
    text = tmp_path / "kernels.tc"
    text.write_text("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }", "utf-8")
    source = f"{text}:twice"
    ad.compile(source)
    found = ad.compile(source)
    assert was_loaded(found) and found(x=X[0])["y"].tolist() == (2 * X[0]).tolist()
    text.write_text("def twice(float(N) x) -> (y) { y(i) = 3 * x(i) }", "utf-8")
    changed = ad.compile(source)
    assert not was_loaded(changed) and changed(x=X[0])["y"].tolist() == (3 * X[0]).tolist()


def test_definitions_of_operators_belong_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Scaled", ["x"], ["y"], domain="mine")], "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    data = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    for factor in (2, 3):
        folder = tmp_path / str(factor)
        folder.mkdir()
        monkeypatch.chdir(folder)
        (folder / "model.onnx").write_bytes(data)
        text = f"def scaled(float(N) x) -> (y) {{ y(i) = {factor} * x(i) }}"
        (folder / "mine.tc").write_text(f"# domain: mine\n{text}", "utf-8")
        for loaded in (False, True):
            model = ad.compile(tmp_path / "2" / "model.onnx", operators="mine.tc")
            assert was_loaded(model) == loaded
            assert model(x=X[0])["y"].tolist() == (factor * X[0]).tolist()


def test_a_loaded_model_offers_what_a_compiled_one_does(path: Path, tmp_path: Path) -> None:
    first, model = ad.compile(path, threads=1), ad.compile(path, threads=1)
    assert was_loaded(model) and isinstance(model, ad.Model)
    assert model.explain(details=True) == first.explain(details=True)
    assert model.plan(n=9) == first.plan(n=9) and model.memory == first.memory
    assert model.index_ranges == first.index_ranges
    assert model.show("kernels") == first.show("kernels")
    assert set(model.report.kernels) == set(first.report.kernels)
    assert model.check(samples=5).ok
    model.save(tmp_path / "a.anydim")
    check(ad.load(tmp_path / "a.anydim"))  # type: ignore[arg-type]
    model.serve_by("exact(limit=2)")
    assert model.prepare(n=4) > 0
    check(model)


def test_what_a_changed_source_cannot_say(path: Path) -> None:
    ad.compile(path)
    model = ad.compile(path)
    onnx.save(model_of(WEIGHTS + 1), path)
    check(model)
    with pytest.raises(ad.OptionError, match="has changed since it was compiled"):
        model.show("kernels")


def test_arguments_of_calls_hold_for_loaded_models(path: Path) -> None:
    ad.compile(path, dims={"n": (0, 8)})
    with pytest.raises(ad.OptionError, match="strategy"):
        ad.compile(path, dims={"n": (0, 8)}, strategy="nothing()")
    model = ad.compile(path, dims={"n": (0, 8)}, on_overflow="grow")
    again = ad.compile(path, dims={"n": (0, 8)}, on_overflow="grow")
    assert was_loaded(again)
    for each in (model, again):
        with pytest.warns(UserWarning, match="above the expected bound"):
            each(x=numpy.ones((9, 3), numpy.float32))


def test_memory_limits_hold_for_loaded_models(tmp_path: Path) -> None:
    nodes = [helper.make_node("CumSum", [f"{n}", "axis"], [f"{n + 1}"]) for n in range(4)]
    graph = helper.make_graph(
        nodes, "sums", [helper.make_tensor_value_info("0", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("4", TensorProto.FLOAT, ["n", "m"])],
        [numpy_helper.from_array(numpy.array(0), "axis")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 20)]
    onnx.save(
        helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path / "sums.onnx"
    )
    dims = {"n": (0, 64), "m": (0, 64)}
    model = ad.compile(tmp_path / "sums.onnx", dims)
    need = model.memory.at(n=64, m=64)
    assert need > 1 and was_loaded(ad.compile(tmp_path / "sums.onnx", dims, memory_limit=need))
    with pytest.raises(ad.MemoryLimitError):
        ad.compile(tmp_path / "sums.onnx", dims, memory_limit=need - 1)


# ---- faults and processes ----------------------------------------------------------------------


def files_of(cache: Path) -> list[Path]:
    kinds = [cache / "programs", cache / "sources"]
    return [file for kind in kinds for file in kind.glob("*/*") if file.suffix != ".lock"]


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("seed", range(24))
def test_damaged_files_cost_time_and_one_warning(path: Path, cache: Path, seed: int) -> None:
    ad.compile(path)
    rng = numpy.random.default_rng(seed)
    for file in files_of(cache):
        data = bytearray(file.read_bytes())
        if rng.random() < 0.3:
            data = data[: int(rng.integers(0, len(data)))]
        else:
            for at in rng.integers(0, len(data), 8):
                data[at] ^= int(rng.integers(1, 256))
        file.write_bytes(data)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check(ad.compile(path))
        check(ad.compile(path))
    assert len([w for w in seen if "damaged" in str(w.message)]) <= 2  # one a folder, once


def test_a_folder_that_cannot_be_used(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    with settings.override(cache_dir=tmp_path / "file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(ad.compile(path))


SCRIPT = """
import sys, numpy
import anydim as ad
model = ad.compile(sys.argv[1], threads=1)
print("loaded" if "load" in model.report.seconds else "compiled",
      float(model(x=numpy.ones((2, 3), "f4"))["y"][0, 0]))
"""


def process(path: Path, cache: Path) -> subprocess.Popen[str]:
    known = {"ANYDIM_CACHE_DIR": str(cache), "ANYDIM_KEEP_PROGRAMS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **known},
    )  # fmt: skip


def test_processes_that_start_at_once_share_one_compile(path: Path, cache: Path) -> None:
    started = [process(path, cache) for _ in range(4)]
    said = [each.communicate()[0].split() for each in started]
    assert sorted(words[0] for words in said) == ["compiled", "loaded", "loaded", "loaded"]
    assert len({words[1] for words in said}) == 1
    assert not list(cache.glob("**/*.lock"))


def test_a_killed_process_holds_nobody_up(path: Path, cache: Path) -> None:
    first = process(path, cache)
    end = time.monotonic() + 60
    while not list(cache.glob("**/*.lock")) and time.monotonic() < end:
        time.sleep(0.002)
    second = process(path, cache)
    first.kill()
    first.wait()
    assert float(second.communicate()[0].split()[1]) == pytest.approx(numpy.exp(12.0), rel=1e-6)
    assert not list(cache.glob("**/*.lock"))


def test_the_limit_holds(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(program_limit_mb=0):
        ad.compile(path)
    assert not [file for file in files_of(cache) if "programs" in file.parts]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    ad.compile(path)
    assert not [file for file in files_of(cache) if "programs" in file.parts]
    assert DiskCache(str(cache / "programs"), 1).limit == 1


def test_few_modules_are_imported_for_a_load(path: Path, cache: Path) -> None:
    ad.compile(path, threads=1)
    script = (
        SCRIPT + "print(sum(m.startswith('anydim.') for m in sys.modules), 'onnx' in sys.modules)"
    )
    known = {"ANYDIM_CACHE_DIR": str(cache), "ANYDIM_KEEP_PROGRAMS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True,
        env={**os.environ, **known},
    )  # fmt: skip
    kind, _, count, onnx_too = done.stdout.split()
    assert kind == "loaded" and int(count) < 140 and onnx_too == "False"


@pytest.mark.parametrize("where", ["initializer", "constant"])
def test_sessions_keep_models_with_external_data(tmp_path: Path, where: str) -> None:
    """Also data of a Constant: its contents belong to what is kept."""
    proto = model_of()
    if where == "constant":
        value = proto.graph.initializer.pop()
        proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=value))
    path, data = tmp_path / "outside.onnx", tmp_path / "outside.bin"
    onnx.save(
        proto, path, save_as_external_data=True, location=data.name, size_threshold=0,
        convert_attribute=True,
    )  # fmt: skip
    for weights in (WEIGHTS, WEIGHTS, WEIGHTS * 2):
        data.write_bytes(weights.tobytes())
        (found,) = InferenceSession(str(path)).run(None, {"x": X})
        assert numpy.allclose(found, numpy.exp(X.astype(float) @ weights), rtol=1e-5)
    assert len(list(Path(settings.cache_dir, "programs").glob("??/*"))) == 2


# ---- what a process has left -------------------------------------------------------------------


def test_a_compiled_model_is_that_of_its_file(path: Path) -> None:
    """Its weights are those of the mapped file, and nothing is left of its compilation."""
    before = compilations()
    model = ad.compile(path)
    assert compilations() <= before  # without a collection
    assert not was_loaded(model) and model.report.compiled + model.report.cached > 0
    (program,) = Path(settings.cache_dir, "programs").glob("??/*")
    constants = list(model.executable.held.arrays.values())
    assert constants and all(not array.flags.owndata for array in constants)
    ranges = mapped(program)
    assert all(any(r.start <= a.ctypes.data < r.stop for r in ranges) for a in constants)
    check(model)


def compilations() -> Counter[str]:
    """What is in memory of compilations, by kind."""
    names = ("Compiled", "Lowered", "Assembled", "Scheduled")
    counts = Counter(type(each).__name__ for each in gc.get_objects())
    return Counter({name: counts[name] for name in names})


def mapped(path: Path) -> list[range]:
    """The addresses at which a file is mapped."""
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    ends = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    return [range(int(low, 16), int(high, 16)) for low, high in ends]


def test_what_a_compiled_model_tells_after_its_compilation(path: Path) -> None:
    """The same as without a cache, and as in a second start but for the times."""
    with settings.override(keep_programs=False):
        plain = ad.compile(path)
    kept, again = ad.compile(path), ad.compile(path)
    assert [*kept.report.seconds] == [*plain.report.seconds]
    assert kept.report.chosen == plain.report.chosen and kept.report.notes == plain.report.notes
    for model in (kept, again):
        assert model.explain(details=True) == plain.explain(details=True)
        assert model.show("kernels") == plain.show("kernels")
        assert model.plan(n=3).launches == plain.plan(n=3).launches
        assert str(model.graph) == str(plain.graph)
        model.check(samples=4)


def test_a_saved_file_is_the_same_whatever_was_kept(path: Path, tmp_path: Path) -> None:
    with settings.override(keep_programs=False):
        plain = ad.compile(path)
    models = plain, ad.compile(path), ad.compile(path)
    path.unlink()  # what was kept needs it no more
    files = [tmp_path / f"{number}.anydim" for number in range(len(models))]
    for model, file in zip(models, files):
        model.save(file)
    first, *others = (file.read_bytes() for file in files)
    assert all(other == first for other in others)


def test_a_kept_file_that_is_damaged_is_not_saved(path: Path, tmp_path: Path) -> None:
    model = ad.compile(path)
    (program,) = Path(settings.cache_dir, "programs").glob("??/*")
    data = bytearray(program.read_bytes())
    at = data.find(WEIGHTS.tobytes()[:16])
    with open(program, "r+b") as file:  # in place: it is mapped
        file.seek(at if at > 0 else len(data) // 2)
        file.write(b"\xff")
    model.save(tmp_path / "saved.anydim")
    check_saved = ad.load(tmp_path / "saved.anydim", verify=True)
    wanted = numpy.exp(X.astype(float) @ WEIGHTS)
    assert numpy.allclose(check_saved(x=X)["y"], wanted, rtol=1e-5)


# ---- what is compared again ----------------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The members of which a digest or a checksum was computed."""
    names: list[str] = []
    check = container.Container.check

    def noted(self: container.Container, name: str) -> None:
        if not self.known:
            names.append(name)
        check(self, name)

    monkeypatch.setattr(container.Container, "check", noted)
    return names


def test_a_program_is_compared_once_after_a_start_of_the_machine(
    path: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ad.compile(path)
    check(ad.compile(path))
    assert not compared  # this machine has written it since it was started
    monkeypatch.setattr(program_cache, "boot", lambda: "another")
    check(ad.compile(path))
    assert compared
    compared.clear()
    check(ad.compile(path))
    assert not compared


def test_a_program_whose_file_was_touched_is_compared(path: Path, compared: list[str]) -> None:
    ad.compile(path)
    (program,) = Path(settings.cache_dir, "programs").glob("??/*")
    os.utime(program, ns=(1, 1))  # it was used long ago, too: its times change with this use
    check(ad.compile(path))
    assert compared
    compared.clear()
    check(ad.compile(path))
    assert not compared


def test_a_system_that_does_not_say_when_it_was_started(
    path: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_cache, "boot", lambda: "")
    ad.compile(path)
    for _ in range(2):
        compared.clear()
        check(ad.compile(path))
        assert compared


def test_the_usual_strategy_is_that_of_the_settings() -> None:
    assert strategies.strategy_of(settings.USUAL_STRATEGY) == strategies.USUAL

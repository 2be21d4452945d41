"""Promise: objects that come with the package serve a first compile, and only where they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import cache, settings
from anydim.compiler.kernels.matmul.contraction_micro_kernels import contraction_libraries
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import bytes_library
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.compiler.native.build import prepare
from anydim.compiler.pipeline import run_pipeline
from anydim.compiler.targets.llvm.render import level_of
from anydim.compiler.targets.processor import describe_processor, every_name
from anydim.compiler.targets.targets import target
from release import shipped

TILE = Tile(8, 3, 2, 16)


def net() -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 16))
    g.output("y", g.matmul(x, g.constant(numpy.ones((16, 8), numpy.float32))))
    return g


def modules(level: str) -> dict[str, str]:
    """The processors that the modules of `net` are compiled for."""
    compiled = run_pipeline(net(), None, 1, lambda *progress: None)
    code = target("llvm", level)
    sources = prepare(compiled.again(code, 1).made, code).sources
    return {n: "" if s.processor is None else s.processor.name for n, s in sources.items()}


@pytest.mark.parametrize("name", every_name())
def test_a_level_is_the_processor_without_what_was_added(name: str) -> None:
    level = describe_processor(name).level
    if name.startswith(("windows-", "macos-")):  # their objects follow other conventions
        assert level is None
        return
    assert level is not None
    assert level.name == name.partition("+")[0]


def test_a_processor_with_other_vectors_or_objects_has_no_level() -> None:
    known = describe_processor("x86-64-v4")
    assert replace(known, vector_bytes=32).level is None
    assert replace(known, registers=16).level is None
    assert replace(known, triple="x86_64-pc-windows-msvc").level is None
    fewer = ",".join(f for f in known.features.split(",") if f != "+avx512dq")
    assert replace(known, features=fewer).level is None


@pytest.mark.parametrize("name", every_name())
def test_dot_products_of_bytes_are_for_the_level_with_their_instructions(name: str) -> None:
    processor = describe_processor(name)
    level, found = processor.level, processor.level_with_dots
    if level is None or found is None:
        assert level is found
        return
    assert (found != level) == (name.partition("+")[2] in ("vnni", "dotprod", "amx"))
    assert level.has <= found.has <= processor.has
    assert level_of(bytes_library(TILE, True, 1), processor) == found
    assert level_of(bytes_library(TILE, True, 4), processor) == processor
    assert level_of(contraction_libraries(TILE, ad.float32)[0], processor) == level


def test_libraries_of_floats_are_portable_and_those_of_tiles_are_not() -> None:
    for dtype, expected in ((ad.float32, True), (ad.float64, True), (ad.float16, False)):
        assert {each.portable for each in contraction_libraries(TILE, dtype)} == {expected}
    assert not bytes_library(TILE, True, 4).portable


def test_what_all_programs_share_is_compiled_for_the_level() -> None:
    found = modules("x86-64-v4+vnni")
    assert {level for level in found.values() if level} == {"x86-64-v4"}
    assert found["threads"] == found["invoke"] == "x86-64-v4"
    assert found["host"] == ""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped objects of one's own, and an empty cache."""
    monkeypatch.setattr(cache, "SHIPPED", str(tmp_path / "shipped"))
    return tmp_path / "shipped"


def put(package: Path, key: str, payload: bytes) -> Path:
    package.mkdir(exist_ok=True)
    path = package / key
    path.write_bytes(cache._file_content(key, payload))
    return path


def test_the_cache_of_a_user_comes_first_then_the_package(package: Path, tmp_path: Path) -> None:
    put(package, "ab12", b"shipped")
    with settings.override(cache_dir=str(tmp_path / "own"), use_cache=True):
        kept, other = cache.user_cache(), cache.disk_cache("programs")
        assert kept is not None and other is not None
        assert kept.get("ab12") == b"shipped"
        assert other.get("ab12") is None
        assert kept.get("cd34") is None
        kept.put("ab12", b"own")
        assert kept.get("ab12") == b"own"


@pytest.mark.parametrize("change", ["cut", "flipped", "another key", "empty"])
def test_a_damaged_object_of_the_package_is_not_there(
    package: Path, tmp_path: Path, change: str
) -> None:
    path = put(package, "ab12", b"shipped")
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[:-1], "flipped": data[:-1] + b"\0", "empty": b"",
            "another key": cache._file_content("ab13", b"shipped"),
        }[change]
    )  # fmt: skip
    with settings.override(cache_dir=str(tmp_path / "own"), use_cache=True):
        kept = cache.user_cache()
        assert kept is not None
        assert kept.get("ab12") is None
        assert path.exists()


def test_shipped_objects_serve_a_first_compile(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small program in place of all of them, for the level of this machine."""
    own = target("llvm").processor.level
    if own is None:
        pytest.skip("no level of the table has the vectors of this machine")
    monkeypatch.setattr(shipped, "program", net)
    monkeypatch.setattr(shipped.layers, "graphs", list)
    written = shipped.write(package, (own.name,))
    assert written == len(list(package.iterdir())) > 0
    assert shipped.write(package, (own.name,)) == written  # those that are there do not count
    counts = []
    for name in ("first", "second"):
        with settings.override(cache_dir=str(tmp_path / name), keep_programs=False):
            counts.append(ad.compile(net()).report.compiled)
        monkeypatch.setattr(cache, "SHIPPED", str(tmp_path / "nothing"))
    portable = [level for level in modules(own.name).values() if level]
    assert counts[1] - counts[0] == len(portable) >= 3


def test_results_of_portable_code_are_those_of_code_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bits."""
    x = numpy.random.default_rng(0).normal(size=(33, 16)).astype(numpy.float32)
    results = []
    for portable in (True, False):
        if not portable:
            own = "anydim.compiler.targets.llvm.render.level_of"
            monkeypatch.setattr(own, lambda code, processor: processor)
        with settings.override(cache_dir=str(tmp_path / str(portable)), keep_programs=False):
            results.append(ad.compile(net())(x=x)["y"])
    assert results[0].tobytes() == results[1].tobytes()

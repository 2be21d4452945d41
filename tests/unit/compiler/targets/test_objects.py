"""Promise: compiled code is found again, and a bad or forbidden cache never gives a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.targets import target
from anydim.compiler.targets.llvm import compiler, render
from anydim.compiler.targets.llvm.compiler import compile_modules, compiling
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.run import launch
from anydim.compiler.targets.target import Objects, Source
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop, number, op

HERE = this_machine()


def sample(factor: int) -> ir.Kernel:
    """y[i] = i * factor."""
    store = ir.Store("y", index("i"), op("mul", index("i"), number(factor)))
    return kernel([ir.Operand("y", int64, True)], [loop("i", START, STOP, store)])


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "trimmed")


def check(factor: int) -> None:
    got = numpy.zeros(5, numpy.int64)
    launch(sample(factor), [got], [], 0, 5)
    assert got.tolist() == [factor * i for i in range(5)]


def test_a_second_compile_takes_the_cached_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {name: Source.of(render.render(sample(n), HERE)) for n, name in enumerate("kl")}
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = compile_modules(modules, HERE)
        assert first.compiled == ("k", "l")
        monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
        assert compile_modules(modules, HERE) == Objects(first.code, ())
        assert compile_modules({"m": modules["k"]}, HERE) == Objects({"m": first.code["k"]}, ())


def named(factor: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, Source]]:
    """A kernel and a library of known identity; the names of those that are rendered from now."""
    rendered: list[str] = []

    original = render.render

    def render_noted(code: Any, processor: Processor, *rest: bool) -> str:
        rendered.append(code.name)
        return original(code, processor, *rest)

    monkeypatch.setattr(render, "render", render_noted)
    scale = ir.Function("scale", (ir.Pointer("y", int64),), (), public=True)
    made = sample(factor)
    library = ir.Library("lib", lambda: (scale,), identity="scale")
    known = named_kernel("sample", made.operands, made.sizes, made.functions, (library,))
    return rendered, render.sources([known], this_machine())


def test_nothing_is_rendered_for_objects_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered, modules = named(3, monkeypatch)
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = compile_modules(modules, HERE)
        assert sorted(rendered) == sorted(first.compiled) == sorted(modules)
        assert compile_modules(modules, HERE) == Objects(first.code, ())
        assert len(rendered) == len(modules)


def test_only_what_is_missing_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered, modules = named(3, monkeypatch)
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = compile_modules(modules, HERE)
        rendered.clear()
        path = files(tmp_path)[0]
        path.write_bytes(path.read_bytes()[:-1])
        again = compile_modules(modules, HERE)
    assert len(again.compiled) == 1
    assert rendered == list(again.compiled)
    assert again.code == first.code


def test_other_code_makes_objects_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        _, modules = named(3, monkeypatch)
        compile_modules(modules, HERE)
        monkeypatch.setattr(target, "code_version", lambda: "another")
        _, modules = named(3, monkeypatch)
        assert compile_modules(modules, HERE).compiled == tuple(modules)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_begun_is_compiled_once(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, modules = named(3, monkeypatch)
    with settings.override(use_cache=False), compiling(HERE, threads) as work:
        work.begin(modules)
        work.begin(modules)
        made = work.finish({**modules, "again": modules["lib"]})
    assert sorted(rendered) == sorted(modules)
    assert made.compiled == (*modules, "again")
    assert made.code["again"] == made.code["lib"]


def test_a_fault_beside_other_work_is_told_at_the_end() -> None:
    with settings.override(use_cache=False), compiling(HERE, 2) as work:
        work.begin({"f": Source.of("define i64 @f( {")})
        with pytest.raises(InternalError, match="define i64"):
            work.finish({"f": Source.of("define i64 @f( {")})


def test_without_cache_nothing_is_written(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=False):
        check(5)
    assert files(tmp_path) == []


def test_damaged_objects_are_compiled_again(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        check(6)
        for path in files(tmp_path):
            path.write_bytes(path.read_bytes()[:-1])
        check(6)


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with settings.override(cache_dir=tmp_path / "file", use_cache=True):
        check(7)


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    script = (
        "from tests.unit.compiler.targets.test_objects import check\n"
        "for factor in (11, 12, 13): check(factor)\n"
    )
    root = Path(__file__).resolve().parents[4]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    knobs = {"ANYDIM_CACHE_DIR": str(tmp_path), "ANYDIM_USE_CACHE": "1"}
    environment = {**os.environ, **knobs, "PYTHONPATH": path}
    runs = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=root)
        for _ in range(2)
    ]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert len(files(tmp_path)) == 3
    with settings.override(cache_dir=tmp_path, use_cache=True):
        check(12)

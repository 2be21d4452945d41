"""Promise: compiled code is found again, and a bad or forbidden cache never gives a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import int64
from anydim.kernels import ir
from anydim.targets.llvm import compiler
from anydim.targets.llvm.cache import ObjectCache, object_key
from anydim.targets.llvm.compiler import compile_modules
from anydim.targets.llvm.render import render_kernel
from anydim.targets.llvm.run import launch
from tests.unit.targets.programs import START, STOP, index, kernel, loop, number, op

MIB = 1024**2


def sample(factor: int) -> ir.Kernel:
    """y[i] = i * factor."""
    store = ir.Store("y", index("i"), op("mul", index("i"), number(factor)))
    return kernel([ir.Operand("y", int64, True)], [loop("i", START, STOP, store)])


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check(factor: int) -> None:
    got = numpy.zeros(5, numpy.int64)
    launch(sample(factor), [got], [], 0, 5)
    assert got.tolist() == [factor * i for i in range(5)]


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "deep" / "folder", MIB)
    key = object_key("a", "b")
    assert cache.get(key) is None
    for payload in (b"", b"x" * 1000, b"other"):
        cache.put(key, payload)
        assert cache.get(key) == payload
    assert len(files(tmp_path)) == 1


def test_keys_tell_parts_apart() -> None:
    assert len({object_key("ab", "c"), object_key("a", "bc"), object_key("abc")}) == 3


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "foreign"])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damage: str) -> None:
    cache = ObjectCache(tmp_path, MIB)
    key = object_key("x")
    cache.put(key, bytes(range(200)))
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes({
        "empty": b"", "short": data[:-50], "flipped": bytes(data), "foreign": b"hello" * 30,
    }[damage])  # fmt: skip
    assert cache.get(key) is None
    assert files(tmp_path) == []
    cache.put(key, b"again")
    assert cache.get(key) == b"again"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 2500)
    keys = [object_key(str(n)) for n in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        path = tmp_path / key[:2] / key[2:]
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # used now: the youngest
    cache.trim()
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True]


def test_a_second_compile_takes_the_cached_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"k": render_kernel(sample(3)), "l": render_kernel(sample(4))}
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = compile_modules(texts)
        monkeypatch.setattr(compiler, "_compile", lambda text: pytest.fail("compiled again"))
        assert compile_modules(texts) == first
        assert compile_modules({"m": texts["k"]}) == {"m": first["k"]}


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
    (tmp_path / "file").write_text("in the way")
    with settings.override(cache_dir=tmp_path / "file", use_cache=True):
        check(7)


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    script = (
        "from tests.unit.targets.test_cache import check\n"
        "for factor in (11, 12, 13): check(factor)\n"
    )
    root = Path(__file__).resolve().parents[3]
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

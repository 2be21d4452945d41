"""Promise: what is kept on disk comes back whole or not at all, and the oldest goes first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anydim.base import cache
from anydim.base.cache import DiskCache, key_of

MIB = 1024**2


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "deep" / "folder"), MIB)
    key = key_of("a", "b")
    assert cache.get(key) is None
    for payload in (b"", b"x" * 1000, b"other"):
        cache.put(key, payload)
        assert cache.get(key) == payload
    assert len(files(tmp_path)) == 1


def test_keys_tell_parts_apart() -> None:
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc")}) == 3


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "foreign"])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(str(tmp_path), MIB)
    key = key_of("x")
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
    cache = DiskCache(str(tmp_path), 2500)
    keys = [key_of(str(n)) for n in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        path = tmp_path / key[:2] / key[2:]
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # used now: the youngest
    cache.trim()
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True]


def test_a_folder_is_walked_once_an_hour(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 2500)
    keys = [key_of(str(n)) for n in range(8)]

    def kept(some: list[str]) -> int:
        for key in some:
            cache.put(key, bytes(1000))
        cache.tidy()
        return len([file for file in files(tmp_path) if file.name != "trimmed"])

    assert kept(keys[:4]) == 2
    assert kept(keys[4:]) == 6
    os.utime(tmp_path / "trimmed", (1000, 1000))
    assert kept([]) == 2


def test_the_version_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code_version = cache.code_version.__wrapped__
    assert code_version() == cache.code_version()
    kernels = tmp_path / "compiler" / "kernels"
    kernels.mkdir(parents=True)
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    versions = []
    for text in ("a = 1", "a = 2"):
        (kernels / "some.py").write_text(text, "utf-8")
        versions.append(code_version())
    assert len({*versions, cache.code_version()}) == 3


def test_code_that_is_known_by_its_name_is_part_of_the_version() -> None:
    """A library with an identity of its own is not hashed: a folder of its generator is."""
    package = Path(cache._PACKAGE)
    hashed = {Path(path) for path, *_ in cache._code_files(cache._ROOMS)}
    assert all((package / room).is_dir() for room in cache._ROOMS)
    makers = {
        path for path in (package / "compiler").rglob("*.py")
        if "ir.Library(" in path.read_text("utf-8") or "shared_library(" in path.read_text("utf-8")
    }  # fmt: skip
    assert len(makers) > 5
    assert {path for path in makers if path.parts[-2] != "variants"} <= hashed

"""Promise: `anydim cache` shows what is kept, finds damaged files, and removes on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.base import settings
from anydim.cli.app import main
from tests.unit.cli import tiny


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    tiny.write(tmp_path / "tiny.onnx")
    with settings.override(cache_dir=tmp_path / "cache", use_cache=True, keep_programs=True):
        ad.compile(tmp_path / "tiny.onnx")
        yield tmp_path / "cache"


def call(line: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == code, done.output
    return done.output


def counts(text: str) -> dict[str, int]:
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 4 and row[1].isdecimal()}


def test_show(cache: Path) -> None:
    text = call("cache")
    found = counts(text)
    assert found["programs"] == found["sources"] == 1 and found["objects"] > 1
    assert found["models"] == 0 and "just now" in text and "never" in text
    assert max(map(len, text.splitlines()[:5])) <= 100


def test_check_removes_what_is_damaged(cache: Path) -> None:
    assert "0 damaged" in call("cache check")
    for kind in ("programs", "objects"):
        file = next((cache / kind).glob("??/*"))
        file.write_bytes(file.read_bytes()[:-20])
    assert "2 damaged" in call("cache check")
    assert "0 damaged" in call("cache check")


def test_prune(cache: Path) -> None:
    assert "0 files removed" in call("cache prune")
    (program,) = (cache / "programs").glob("??/*")
    os.utime(program, (0, 0))
    assert "1 files removed" in call("cache prune --unused 30")
    assert not program.exists()
    assert set(counts(call("cache prune --all")).values()) == {0}


def test_options_of_prune_alone(cache: Path) -> None:
    assert "with `anydim cache prune` only" in call("cache show --all", code=2)


def test_no_cache_yet(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path / "none"):
        assert set(counts(call("cache")).values()) == {0}
        assert "0 files checked" in call("cache check")

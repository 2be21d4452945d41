"""Promise: a start that finds the stored model reads no file of it, and is the model of its files.

What decides the results is in what is stored: any change of a file or an argument is seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.read_files import FileRead
from anydim.serving.language_models import opening
from tests.caches import empty_cache
from tests.unit.serving.language_models.tiny_models import (
    TEXTS,
    tokenizer,
    weights,
    write_folder,
    write_gguf,
)

USER = [{"role": "user", "content": "the dog"}]
Seen = list[str]


@pytest.fixture(autouse=True)
def stored(tmp_path: Path) -> Iterator[Path]:
    """A cache folder that is empty."""
    with settings.override(cache_dir=empty_cache(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The files that are opened as a model, and those whose contents are read for a digest."""
    found: Seen = []
    files, read = opening.open_files, FileRead.of

    def open_files(place: Path, *arguments: Any) -> Any:
        found.append(f"open {place.name}")
        return files(place, *arguments)

    def of(path: str) -> FileRead:
        found.append(f"read {Path(path).name}")
        return read(path)

    monkeypatch.setattr(opening, "open_files", open_files)
    monkeypatch.setattr(FileRead, "of", staticmethod(of))
    return found


def answer(path: Path, **options: Any) -> tuple[str, list[int], str]:
    with ad.language_model(path, threads=1, **options) as lm:
        stream = lm.chat(USER, 8)
        return stream.read(), stream.tokens, lm.name


def settle(*paths: Path) -> None:
    """Files whose times prove that they are unchanged: written long ago."""
    for path in paths:
        os.utime(path, (time.time() - 60, time.time() - 60))
    time.sleep(2.1)  # of the change time, which no one can set


def models(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("models/*/*") if path.is_file()]


def test_later_starts_read_no_file(tmp_path: Path, seen: Seen, stored: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    settle(path)
    first = answer(path)
    assert seen == ["read tiny.gguf", "open tiny.gguf"] and len(models(stored)) == 1
    seen.clear()
    assert answer(path) == first and seen == []
    path.touch()  # in case of doubt, the contents decide
    assert answer(path) == first and seen == ["read tiny.gguf"]
    seen.clear()
    again = write_gguf(tmp_path / "tiny2.gguf")
    assert answer(again)[:2] == first[:2] and seen[-1] == "open tiny2.gguf"


def test_arguments_are_of_what_is_stored(tmp_path: Path, seen: Seen) -> None:
    folder = write_folder(tmp_path / "tiny")
    answer(folder)
    given: tuple[dict[str, Any], ...] = (
        {"context": 64}, {"quantize": "q8"}, {"cache": "float16"}, {"precision": "bfloat16"},
    )  # fmt: skip
    for count, options in enumerate(given, start=2):
        expected = answer(folder, **options)
        assert seen.count("open tiny") == count
        assert answer(folder, **options) == expected and seen.count("open tiny") == count
        with ad.language_model(folder, threads=1, **options) as lm:
            assert lm.spec.context == options.get("context", 128)
            assert lm.spec.cache == options.get("cache", "float32")


def test_changed_files_of_a_folder_are_seen(tmp_path: Path, seen: Seen) -> None:
    folder = write_folder(tmp_path / "tiny")
    answer(folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}", "utf-8")
    with ad.language_model(folder, threads=1) as lm:
        assert lm.chat_tokens(USER) == lm.encode("the dog")
    tokenizer([TEXTS[0][:3] + " " * 3]).save(str(folder / "tokenizer.json"))
    with ad.language_model(folder, threads=1) as lm:
        assert lm.encode("the   ") == [315]
    own = tmp_path / "own.json"
    tokenizer(["dogs"]).save(str(own))
    for expected in (3, 3):
        with ad.language_model(folder, threads=1, tokenizer=own) as lm:
            assert len(lm.encode("dogs") + [0, 0]) == expected
    assert seen.count("open tiny") == 4
    tensors = weights(315)
    tensors["model.norm.weight"] *= 0
    write_folder(folder, tensors)
    with ad.language_model(folder, threads=1) as lm:
        assert lm.generate([5, 6], 3).read() == lm.decode([0])
    (folder / "config.json").unlink()
    with pytest.raises(ad.ModelError):
        ad.language_model(folder, threads=1)


def test_damage_of_what_is_stored_is_mended(tmp_path: Path, stored: Path, seen: Seen) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    first = answer(path)
    (kept,) = models(stored)
    content = kept.read_bytes()
    for damaged in (b"", content[:100], content[:-1], content[:9000] + b"x" + content[9001:]):
        kept.unlink()
        kept.write_bytes(damaged)
        seen.clear()
        assert answer(path) == first and "open tiny.gguf" in seen
    kept.unlink()
    assert answer(path) == first


def test_models_of_stored_starts_are_saved_for_other_processors(tmp_path: Path, seen: Seen) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    first = answer(path)
    with ad.language_model(path, threads=1) as lm:
        lm.save(tmp_path / "one.anydim")
        assert seen.count("open tiny.gguf") == 1
        lm.save(tmp_path / "two.anydim", targets=["native", "x86-64-v3"])
    assert seen.count("open tiny.gguf") == 2
    for name in ("one", "two"):
        assert answer(tmp_path / f"{name}.anydim")[:2] == first[:2]


def test_starts_without_a_cache_compile(tmp_path: Path, seen: Seen) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    with settings.override(use_cache=False):
        assert answer(path) == answer(path)
    assert seen.count("open tiny.gguf") == 2

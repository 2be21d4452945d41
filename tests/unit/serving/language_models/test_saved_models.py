"""Promise: a saved language model answers as the original, without a compiler.

Changed files are refused.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anydim as ad
from anydim.cli.app import main as command_line
from anydim.deploy.archive import Member, copy
from anydim.deploy.container import Container
from anydim.serving.language_models.language_model import LanguageModel
from anydim.serving.language_models.paths import LANGUAGE
from tests.unit.deploy.hostile import flipped
from tests.unit.serving.language_models.tiny_models import CONTEXT

SOURCE = Path(__file__).resolve().parents[4] / "src"
CHAT = [{"role": "user", "content": "the dog"}]
PROMPTS = ["the quick", "0 1 2", "dog"]


@pytest.fixture(scope="module")
def file(lm: LanguageModel, folder: Path) -> Path:
    path = folder.parent / "tiny.anydim"
    lm.save(path)
    return path


def answers(model: LanguageModel) -> list[Any]:
    texts = [model.generate(prompt, 12).read() for prompt in PROMPTS]
    texts.append(model.generate("dog", 12, temperature=0.9, seed=5).read())
    return [*texts, model.chat(CHAT, 8).read(), model.memory([3, 40]), model.largest(2)]


def test_a_saved_model_answers_as_the_original(lm: LanguageModel, file: Path) -> None:
    with ad.language_model(file, threads=1) as saved:
        assert answers(saved) == answers(lm)
        assert saved.embed(["the dog"]).tobytes() == lm.embed(["the dog"]).tobytes()
        saved.save(file.with_name("again.anydim"))
    with ad.language_model(file.with_name("again.anydim"), threads=1) as again:
        assert answers(again) == answers(lm)


def test_several_processors_and_one_that_is_found_on_disk(folder: Path, file: Path) -> None:
    path = file.with_name("two.anydim")
    with ad.language_model(folder, threads=1) as original:  # the second one
        assert isinstance(original.model.model, ad.LoadedModel)
        original.save(path, ["x86-64-v3", "x86-64-v4"])
        original.save(file.with_name("native.anydim"))
        with ad.language_model(path, threads=1) as saved:
            assert {level.name for level in saved.model.model.levels} == {"x86-64-v3", "x86-64-v4"}
            assert saved.generate("dog", 12).read() == original.generate("dog", 12).read()


def test_no_compiler_is_imported(file: Path) -> None:
    script = f"""
import sys, anydim
with anydim.language_model({str(file)!r}, threads=1) as lm:
    print(lm.generate("dog", 4).read() == lm.generate("dog", 4).read())
found = [name for name in sys.modules if name.startswith(("anydim.compiler.", "anydim.lang"))]
print([name for name in found if not name.startswith("anydim.compiler.variants")])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True", "[]"]


def test_a_smaller_context_is_kept_to(file: Path) -> None:
    with ad.language_model(file, context=9, threads=1) as saved:
        assert len(list(saved.decoder.generate([1, 2, 3], 6))) == 6
        with pytest.raises(ad.InputError, match="at most 9"):
            saved.generate(list(range(9)), 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"quantize": "q8"}, "save the original"), ({"precision": "int8"}, "save the original"),
     ({"context": CONTEXT + 1}, f"saved for {CONTEXT}"), ({"context": "9"}, "context is '9'"),
     ({"tokenizer": "missing.json"}, "is no tokenizer"), ({"threads": 0}, "threads")],
)  # fmt: skip
def test_wrong_options(file: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ad.UserError, match=words):
        ad.language_model(file, **options)


def test_wrong_paths_and_processors(lm: LanguageModel, file: Path) -> None:
    for given in (
        (3,),
        (file.parent,),
        ("/missing/x.anydim",),
        (file, "z80"),
        (file, 4),
        (file, []),
    ):
        with pytest.raises(ad.UserError):
            lm.save(*given)
    with (
        ad.language_model(file, threads=1) as saved,
        pytest.raises(ad.OptionError, match="its own processors"),
    ):
        saved.save(file.with_name("x.anydim"), "x86-64-v3")


def test_files_changed_in_every_way_are_refused(file: Path, tmp_path: Path) -> None:
    data, path = file.read_bytes(), tmp_path / "changed.anydim"
    for seed in range(40):
        path.write_bytes(flipped(random.Random(seed), bytearray(data), [data]))
        try:
            with ad.language_model(path, threads=1) as changed:
                changed.generate("dog", 2).read()
        except ad.UserError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"vocabulary":315', '"vocabulary":316'), ('"vocabulary":315', '"vocabulary":-1'),
     ('"context":128', '"context":0'), ('"heads":4', '"heads":"4"'), ('"stop":[0]', '"stop":[999]'),
     ('"layers":[{', '"layers":[{"window":null,"rope":null},{'), ('"record":{', '"record":[{')],
)  # fmt: skip
def test_members_that_lie_are_refused(file: Path, tmp_path: Path, old: str, new: str) -> None:
    container, path = Container(str(file)), str(tmp_path / "lies.anydim")
    text = bytes(container.verify_member(LANGUAGE)).decode()
    assert old in text, text
    changed = Member(LANGUAGE, text.replace(old, new, 1).encode())
    copy(container, path, (LANGUAGE,), {}, [changed])
    with pytest.raises(ad.ArtefactError):
        ad.language_model(path, threads=1)


def test_an_ordinary_model_is_no_language_model(file: Path, tmp_path: Path) -> None:
    builder = ad.Builder("twice")
    x = builder.input("x", "float32", [builder.dim("n", 0, 9)])
    builder.output("y", x + x)
    ad.compile(builder).save(tmp_path / "twice.anydim")
    with pytest.raises(ad.UserError, match="no language model"):
        ad.language_model(tmp_path / "twice.anydim")


def test_the_command_line_saves_and_chats(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "made.anydim")
    for words in (["compile", str(folder), "-o", path, "--quiet"], ["inspect", path]):
        with pytest.raises(SystemExit) as ended:
            command_line(words, prog_name="anydim")
        assert ended.value.code == 0, capsys.readouterr()
    with ad.language_model(path, threads=1) as saved:
        assert saved.chat(CHAT, 4).tokens == []

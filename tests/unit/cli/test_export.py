"""Promise: `anydim export` writes what `Model.export` does, and says what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from anydim.cli.app import main
from tests.kernel_targets import needs_compiler
from tests.unit.cli import tiny
from tests.unit.deploy.web.node import answers, needs_node
from tests.unit.serving.language_models.tiny_models import write_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny.write(tmp_path / "tiny.onnx")
    return tmp_path / "tiny.onnx"


@pytest.mark.parametrize(
    "code, ending", [pytest.param("c", "c", marks=needs_compiler), ("llvm", "o")]
)
def test_a_folder_is_written(code: str, ending: str, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["export", str(model), "-o", str(folder), "--name", "small", "--dim", "n=0..9",
                 "--target", "aarch64", "--code", code]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "builds its example" in result.stderr
    names = sorted(path.name for path in folder.iterdir())
    made = (
        "CMakeLists.txt",
        "Makefile",
        "code",
        "example.c",
        "small.c",
        "small.h",
        "small.weights",
    )
    assert names == list(made)
    assert {path.suffix for path in (folder / "code").iterdir()} == {f".{ending}"}


@pytest.mark.parametrize(
    "more, text",
    [
        (["-o", "FILE"], "is a file"),
        (["-o", "OUT", "--target", "z80"], "there is no processor 'z80'"),
        (["-o", "OUT", "--name", "a-b"], "cannot begin the names"),
    ],
)
def test_what_cannot_be(more: list[str], text: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    places = {"FILE": str(tmp_path / "file"), "OUT": str(tmp_path / "out")}
    arguments = ["export", str(model), *(places.get(word, word) for word in more)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert not (tmp_path / "out").exists()


@needs_node
def test_a_language_model_is_a_page(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "tiny")
    arguments = ["export", str(source), "-o", str(tmp_path / "web"), "--target", "wasm32"]
    result = CliRunner().invoke(main, [*arguments, "--context", "64", "--quantize", "q8"])
    assert result.exit_code == 0, result.output
    assert "serves its page" in result.stderr and "no chat" not in result.stderr
    (found,) = answers(tmp_path / "web", [{"code": "[model.name, model.context]"}])
    assert found["value"] == ["tiny", 64]


@pytest.mark.parametrize("option", [["--context", "9"], ["--quantize", "q4"]])
def test_options_of_language_models(option: list[str], model: Path, tmp_path: Path) -> None:
    arguments = ["export", str(model), "-o", str(tmp_path / "out"), *option]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "are of language models" in result.stderr

"""Promise: each command takes a language model as it is meant, or says which commands do; no option
is ignored.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from anydim.cli.app import main
from anydim.cli.options import ModelCommand
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder

COMMANDS = {name: main.get_command(click.Context(main), name) for name in main.list_commands(None)}
OF_MODELS = sorted(name for name, each in COMMANDS.items() if isinstance(each, ModelCommand))
TAKEN = {"bench": ["--tokens", "4"], "compile": [], "export": [], "explain": [], "memory": []}
WRITES = {"compile": ["-o", "x.anydim"], "export": ["-o", "x"], "trace": ["-o", "t.json"]}
NEEDS = {**WRITES, "show": ["--stage", "fuse"], "tune": ["--profile", "s.jsonl"]}
SHARED = {
    "--dim": "seq=1..8", "--type": "T=float64", "--attribute": "eps=1", "--ragged": "auto",
    "--placement": "fixed", "--fallback": "torch", "--strategies": "a=exact()",
    "--strategy": "exact", "--device": "a=cpu", "--memory-limit": "1GiB", "--level": "native",
    "--code": "c", "--precision": "int8", "--input": "a.npz", "--profile": "s.jsonl",
    "--lengths": "3,4", "--at": "seq=3",
}  # fmt: skip
HONOURED = {"--precision": set(TAKEN), "--code": {"export"}, "--at": {"memory", "bench"},
            "--lengths": {"bench"}}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(
        tmp_path_factory.mktemp("tiny") / "tiny", weights(tokenizer().get_vocab_size())
    )


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    Path("s.jsonl").write_text('{"sizes": {}}\n', "utf-8")

    def call(*line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*line, str(folder)])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.mark.parametrize("name", OF_MODELS)
def test_a_command_takes_a_language_model_or_names_those_that_do(name: str, run) -> None:  # type: ignore[no-untyped-def]
    if name not in TAKEN:
        assert "is a language model" in run(name, *NEEDS.get(name, ()), code=2).output
    elif name not in WRITES:  # test_saving and test_export write
        assert run(name, *TAKEN[name], "--threads", "1").output


@pytest.mark.parametrize("option", sorted(SHARED))
@pytest.mark.parametrize("name", sorted(TAKEN))
def test_no_option_is_ignored(name: str, option: str, run) -> None:  # type: ignore[no-untyped-def]
    known = {each for param in COMMANDS[name].params for each in param.opts}
    if option not in known or name in HONOURED.get(option, ()):
        pytest.skip("no such option, or it is honoured")
    line = (name, *TAKEN[name], *WRITES.get(name, ()), option, SHARED[option])
    assert f"{option} has no meaning for a language model" in run(*line, code=2).output


@pytest.mark.parametrize("option", [
    ["--at", "a=1"], ["--lengths", "3,4"], ["--against", "onnxruntime"], ["--onnx", "a.onnx"],
    ["--integers", "a=0..1"],
])  # fmt: skip
def test_tokens_are_measured_alone(option: list[str], run) -> None:  # type: ignore[no-untyped-def]
    assert "--tokens" in run("bench", "--tokens", "4", *option, code=2).output


def test_contents_of_the_files(run) -> None:  # type: ignore[no-untyped-def]
    text = run("inspect").output
    assert "2 of 64, 4 heads of 16, 2 of keys" in text and "BPE tokenizer" in text
    assert "in 1 file" in text


def test_memory_of_sequences(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    import anydim as ad

    with ad.language_model(folder, threads=1) as lm:
        known = lm.memory([100] * 3)
    text = run("memory", "--at", "rows=3,tokens=100", "--within", "1MiB").output
    assert str(known["caches"] + known["step"]) in text and "1MiB" in text
    for given in ("seq=3", "rows=0", "tokens=0", "tokens=129", "rows=99999999"):
        assert "--at" in run("memory", "--at", given, code=2).output

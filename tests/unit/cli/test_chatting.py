"""Promise: `anydim chat` answers with the whole conversation; `bench --tokens` times a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import anydim as ad
from anydim.cli.app import main
from anydim.cli.chatting import _Conversation
from anydim.cli.report.console import Console

pytest.importorskip("jinja2")
from tests.unit.serving.language_models.tiny_models import (
    CONTEXT,
    tokenizer,
    weights,
    write_folder,
)

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensors = weights(tokenizer().get_vocab_size())
    tensors["model.embed_tokens.weight"] /= 4  # tokens that differ from the one before
    return write_folder(tmp_path_factory.mktemp("chat") / "tiny", tensors)


@pytest.fixture(scope="module")
def lm(folder: Path) -> Iterator[Any]:
    with ad.language_model(folder, threads=1) as model:
        yield model


@pytest.fixture
def call(folder: Path, lm: Any, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(folder.parent)

    def run(line: str, given: str | bytes = "", code: int = 0) -> Result:
        result = CliRunner().invoke(main, line.split(), input=given)
        assert result.exit_code == code, result.output
        return result

    return run


def answers(lm: Any, *texts: str, first: Any = (), **options: Any) -> list[str]:
    """The answers to messages, each with those before it."""
    messages, found = list(first), []
    for text in texts:
        messages.append({"role": "user", "content": text})
        found.append(lm.chat(messages, **options).read())
        messages.append({"role": "assistant", "content": found[-1]})
    return found


def test_each_line_of_a_pipe_is_answered_with_those_before(call: Call, lm: Any) -> None:
    options = {"max_tokens": 8, "temperature": 2.0, "seed": 3}
    one, two = answers(lm, "the dog", "a fox", **options)
    (again,) = answers(lm, "a fox", **options)
    assert len({one, two, again}) == 3
    line = "chat tiny --threads 1 --max-tokens 8 --temperature 2 --seed 3 --quiet"
    given = "the dog\n\na fox\n/reset\na fox\n/quit\nnever\n"
    assert call(line, given).stdout == f"{one}\n{two}\n{again}\n"


def test_system_messages_long_ones_and_slashes(call: Call, lm: Any) -> None:
    system = [{"role": "system", "content": "be-brief"}]
    expected = answers(lm, "/dog\nfox", first=system, max_tokens=6)
    result = call("chat tiny --threads 1 --system be-brief --max-tokens 6 --stats",
                  "//dog\\\nfox\n/nope\n/help\n")  # fmt: skip
    assert result.stdout == f"{expected[0]}\n"
    for text in ("no such command /nope", "/reset   forget", "tokens in"):
        assert text in result.stderr


def test_the_oldest_messages_are_left_out_where_all_do_not_fit(call: Call, lm: Any) -> None:
    long = "0 1 2 3 " * 11
    assert 3 * len(lm.encode(long)) > CONTEXT > 2 * len(lm.encode(long))
    lines = f"{long}\n{long}\n{long}\n{'z' * 200}\nthe dog\n"
    result = call("chat tiny --threads 1 --max-tokens 3", lines)
    assert "the oldest 2 messages no longer fit and are left out" in result.stderr
    assert "the prompt has" in result.stderr and len(result.stdout.splitlines()) >= 4


@pytest.mark.parametrize("line, said", [
    ("chat nowhere.gguf", "there is no 'nowhere.gguf'"),
    ("chat tiny --context 4096", "the model declares 128 tokens"),
    ("chat tiny --temperature -1", "temperature"), ("chat tiny --quantize q5", "q5"),
    ("chat tiny --precision half", "half"), ("chat tiny --memory 1KiB", "bytes"), ("chat", "MODEL"),
    ("bench tiny --tokens 127", "at most 128"), ("chat tiny --speculate 65", "65"),
    ("chat tiny --draft tiny --speculate 0", "no effect with --speculate 0"),
    ("chat tiny --draft nowhere.gguf", "there is no 'nowhere.gguf'"),
])  # fmt: skip
def test_what_cannot_run_says_why(call: Call, line: str, said: str) -> None:
    result = call(line, "hi\n", 0 if "1KiB" in line else 2)
    assert said in result.stderr


@pytest.mark.parametrize("drafts", ("--speculate 3", "--draft tiny", "--draft tiny --speculate 1"))
def test_drafts_leave_answers_as_they_are(call: Call, lm: Any, drafts: str) -> None:
    (expected,) = answers(lm, "0 1 2 0 1 2", max_tokens=20)
    found = call(f"chat tiny --threads 1 --max-tokens 20 {drafts} --quiet", "0 1 2 0 1 2\n")
    assert found.stdout == f"{expected}\n"


def test_text_that_is_no_utf_8_is_answered(call: Call) -> None:
    assert call("chat tiny --threads 1 --max-tokens 2", b"a\xff\xfeb\n").stdout


class Interrupted:
    """A model whose answer the user stops."""

    def __init__(self, lm: Any) -> None:
        self._lm, self.given = lm, list[Any]()
        self.stream: Any = None

    def chat(self, messages: Any, **options: Any) -> Any:
        self.given = [dict(each) for each in messages]
        self.stream = self._lm.chat(messages, **options)
        return self if len(messages) == 1 else self.stream

    def __iter__(self) -> Iterator[str]:
        yield next(self.stream)
        raise KeyboardInterrupt

    @property
    def tokens(self) -> list[int]:
        found: list[int] = self.stream.tokens
        return found

    def close(self) -> None:
        self.stream.close()


def test_an_interrupt_stops_the_answer_and_keeps_what_there_is(
    lm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Interrupted(lm)
    talk = _Conversation(Console(), model, None, 40, {"temperature": 0.0}, False)
    talk.answer("the dog")
    printed = capsys.readouterr()
    assert "(stopped)" in printed.err
    talk.answer("more")
    assert [each["role"] for each in model.given] == ["user", "assistant", "user"]
    assert model.given[1]["content"] == printed.out.removesuffix("\n") != ""


def test_bench_prints_tokens_a_second(call: Call) -> None:
    header, *rows = call("bench tiny --tokens 20 --rounds 1 --threads 1").stdout.splitlines()
    assert header.split() == ["rows", "prompt", "new", "tokens", "of", "each", "row"]
    assert [row.split()[0] for row in rows] == ["1", "4", "16"]
    assert all(float(value) > 0 for row in rows for value in row.split()[1:])

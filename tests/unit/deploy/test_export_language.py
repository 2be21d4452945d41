"""Promise: a language model exported to C has the bits of Python's, for sequences of any lengths,
and says what is wrong with tokens and weights; GCC, Clang and MinGW build it, by make and by CMake.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving.language_models.language_model import LanguageModel
from anydim.serving.sampling import sampled
from tests.kernel_targets import needs_compiler
from tests.unit.deploy.test_export_windows import AVX2, MINGW, WINE, by_cmake, done, on_windows
from tests.unit.serving.language_models.tiny_models import write_folder, write_gguf

pytestmark = needs_compiler
HOST = Path(__file__).with_name("language_host.c")
STRICT = "WARNINGS=-Wall -Wextra -Werror"
CLANG = shutil.which("clang") or f"{sys.executable} -m ziglang cc"
WINDOWS = ("CC=x86_64-w64-mingw32-gcc", "AR=x86_64-w64-mingw32-ar", "LDFLAGS=-static")
PROMPTS = [[5], [263, 313, 306, 308], list(range(127)), list(range(314, 186, -1))]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    """The model of Python, with code for AVX2 alone."""
    home = tmp_path_factory.mktemp("lm")
    with ad.language_model(write_folder(home / "tiny"), threads=1) as model:
        model.save(home / "tiny.anydim", AVX2)
    with ad.language_model(home / "tiny.anydim", threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def folder(lm: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("c") / "tiny"
    source = write_folder(tmp_path_factory.mktemp("source") / "tiny")
    with ad.language_model(source, threads=1) as model:
        model.export(made, target=AVX2)
    return build(made)


def build(folder: Path, *more: str, host: bool = True) -> Path:
    """Build the example, and the host with the same compiler."""
    if host:
        text = (folder / "example.c").read_text("utf-8")
        (folder / "example.c").write_text(HOST.read_text("utf-8"), "utf-8")
        done(["make", "-s", "-C", folder, STRICT, "CFLAGS=-O1", *more])
        made = next(path for path in folder.glob("example*") if path.suffix in ("", ".exe"))
        made.rename(made.with_stem("host"))
        (folder / "example.o").unlink()
        (folder / "example.c").write_text(text, "utf-8")
    done(["make", "-s", "-C", folder, STRICT, "CFLAGS=-O1", *more])
    return folder


def answers(folder: Path, lines: Sequence[str], runner: Sequence[str] = ()) -> list[str]:
    program = folder / ("host.exe" if runner else "host")
    made = done([*runner, program, folder / "tiny.weights"], input="\n".join(lines).encode())
    return made.stdout.decode().replace("\r", "").split("\n")[:-1]


def command(which: int, tokens: Sequence[int], word: str = "read") -> str:
    return " ".join(map(str, (word, which, len(tokens), *tokens)))


def bits(lm: LanguageModel, *parts: Sequence[int]) -> list[str]:
    """The logits that Python has behind each part of one sequence, as the host prints them."""
    row, found = lm.model.join(), []
    for part in parts:
        logits = lm.model.step({row: {"ids": np.array(part)}})["logits"][0]
        found.append("".join(f"{word:08x}" for word in logits.view(np.uint32).reshape(-1)))
    lm.model.leave(row)
    return found


def test_logits_have_the_bits_of_python(lm: LanguageModel, folder: Path) -> None:
    """Prompts of 1 to 128 tokens at once, token by token, and what remains after a forget."""
    for prompt in PROMPTS:
        assert answers(folder, [command(0, prompt)]) == bits(lm, prompt)
    steps = [[token] for token in PROMPTS[1]]
    assert answers(folder, [command(0, each) for each in steps]) == bits(lm, *steps)
    again = [command(0, PROMPTS[2]), "forget 0 3", command(0, [9, 8])]
    assert answers(folder, again)[2] == bits(lm, [0, 1, 2, 9, 8])[0]
    skipped = [command(0, PROMPTS[2][:70], "skip"), command(0, PROMPTS[2][70:])]
    assert answers(folder, skipped) == ["", bits(lm, PROMPTS[2])[0]]


def test_sequences_are_independent(lm: LanguageModel, folder: Path) -> None:
    lines = [command(0, [5, 6]), command(1, PROMPTS[2]), command(2, [7]), command(0, [8])]
    assert answers(folder, lines)[-1] == bits(lm, [5, 6, 8])[0]


def test_the_example_continues_tokens(lm: LanguageModel, folder: Path) -> None:
    for prompt in PROMPTS[:3]:
        given = " ".join(map(str, prompt)).encode()
        made = done([folder / "example", folder / "tiny.weights", 60], input=given).stdout
        stream = lm.generate(prompt, 60)
        stream.read()
        left = 128 - len(prompt) + 1  # the last token needs no room
        assert [*map(int, made.split())][: len(stream.tokens)] == stream.tokens
        assert len(made.split()) == min(60, left) or stream.reason == "stop"


@pytest.mark.parametrize("given, text", [
    ("", "there are no tokens to read"), ("315", "a token is not in 0..314"),
    ("-1", "a token is not in"), ("one", "numbers of tokens were expected"),
    (" ".join(["1"] * 129), "would have more than 128 tokens"),
])  # fmt: skip
def test_wrong_prompts_of_the_example(given: str, text: str, folder: Path) -> None:
    made = subprocess.run([folder / "example", folder / "tiny.weights", "3"], check=False,
                          input=given.encode(), capture_output=True)  # fmt: skip
    assert made.returncode == 1 and text in made.stderr.decode() and not made.stdout


def test_wrong_tokens_are_errors_and_change_nothing(lm: LanguageModel, folder: Path) -> None:
    lines = [command(0, [5, 6]), command(0, []), command(0, [1, 315]), command(0, [-1]),
             command(0, [1] * 127), "forget 0 3", "forget 0 -1", command(0, [8]),
             "stop 0", "stop 1"]  # fmt: skip
    none, unknown = "there are no tokens to read", "a token is not in 0..314"
    most, fewer = "the sequence would have more than 128 tokens", "does not have that many tokens"
    found = answers(folder, lines)
    assert found[1:5] == [none, unknown, unknown, most]
    assert fewer in found[5] and fewer in found[6]
    assert found[7:] == [bits(lm, [5, 6, 8])[0], "1", "0"]


def test_wrong_weights_are_errors(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "tiny.weights").read_bytes())
    files: dict[str, bytes] = {"short": bytes(data[:-1]), "none": b"", "long": bytes([*data, 0])}
    data[-1] ^= 1
    files["changed"] = bytes(data)
    data[40] ^= 1
    files["other"] = bytes(data)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        made = subprocess.run([folder / "example", tmp_path / name, "3"], input=b"5",
                              capture_output=True, check=False)  # fmt: skip
        assert made.returncode == 1 and b"not those of this program" in made.stderr, name
    made = subprocess.run([folder / "example", tmp_path / "absent", "3"], input=b"5",
                          capture_output=True, check=False)  # fmt: skip
    assert made.returncode == 1 and b"cannot be read" in made.stderr


def test_memory_is_that_of_python(lm: LanguageModel, folder: Path) -> None:
    lengths = [(0, 1), (0, 128), (63, 1), (64, 1), (100, 28)]
    found = answers(folder, [f"bytes {length} {count}" for length, count in lengths])
    for (length, count), each in zip(lengths, found, strict=True):
        own, step = map(int, each.split())
        caches = lm.memory([length])["caches"] if length else 0
        assert 0 <= own - caches - 4 * 315 < 64 and step == lm.model.step_bytes([length], [count])


def test_draws(lm: LanguageModel, folder: Path) -> None:
    """A seed draws what it draws in Python."""
    cases = [(5, 0, 1.0, 1, 4000), (5, 0, 1.0, 2**63 - 1, 9), (1, 1, 1.0, 3, 9), (5, 3, 1.0, 3, 99),
             (1, 0, 1e-9, 3, 9), (7, 0, 0.6, 4, 500), (4, 40, 0.7, 5, 500)]  # fmt: skip
    lines = [" ".join(map(str, ("draw", 0, t, k, p, *rest))) for t, k, p, *rest in cases]
    found = answers(folder, [command(0, [5]), *lines])[1:]
    logits = np.asarray(lm.model.step({lm.model.join(): {"ids": np.array([5])}})["logits"][0])[0]
    for (temperature, top_k, top_p, seed, count), line in zip(cases, found, strict=True):
        choose = sampled(float(temperature), top_p, seed, top_k=top_k)
        assert [*map(int, line.split())] == [choose(logits) for _ in range(count)]


@pytest.mark.sampled(only=["Q4_0"])  # the page of the browser has both
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_weights_of_few_bits(kind: str, folder: Path, tmp_path: Path) -> None:
    """They stay narrow; on this machine, the bits are those of the compiled model."""
    with ad.language_model(write_gguf(tmp_path / "tiny.gguf", kind), threads=1) as model:
        model.export(tmp_path / "c")
        build(tmp_path / "c")
        assert answers(tmp_path / "c", [command(0, PROMPTS[1])]) == bits(model, PROMPTS[1])
    sizes = [(each / "tiny.weights").stat().st_size for each in (tmp_path / "c", folder)]
    assert sizes[0] < 0.6 * sizes[1]


@pytest.mark.slow
def test_several_threads_and_clang(lm: LanguageModel, folder: Path, tmp_path: Path) -> None:
    """And a folder that holds an earlier export."""
    lines = [command(0, PROMPTS[2]), command(0, [8])]
    wanted = bits(lm, PROMPTS[2], [8])
    source = write_folder(tmp_path / "tiny")
    with ad.language_model(source, threads=1) as model:
        for threads, compiler in ((1, CLANG), (3, None), (3, CLANG)):
            model.export(tmp_path / "c", target=AVX2, threads=threads)
            own = () if compiler is None else (f"CC={compiler}",)
            assert answers(build(tmp_path / "c", *own), lines) == wanted


@on_windows
@pytest.mark.slow
def test_windows_has_the_bits_of_linux(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MINGW and WINE
    made = tmp_path / "windows"
    shutil.copytree(folder, made, ignore=shutil.ignore_patterns("*.o", "*.a", "host", "example"))
    done(["make", "-s", "-C", made, "clean"])
    build(made, *WINDOWS)
    lines = [command(0, PROMPTS[2]), command(1, [315]), command(0, [8]), command(1, PROMPTS[1])]
    monkeypatch.setenv("WINEPREFIX", str(tmp_path / "wine"))
    monkeypatch.setenv("WINEDEBUG", "-all")
    assert answers(made, lines, [WINE]) == answers(folder, lines)


@by_cmake
@pytest.mark.slow
def test_cmake_builds_it(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "built"
    done(["cmake", "-S", folder, "-B", made])
    done(["cmake", "--build", made])
    given: Any = {"input": b"263 313 306 308"}
    example = done([folder / "example", folder / "tiny.weights", 9], **given).stdout
    assert done([made / "example", folder / "tiny.weights", 9], **given).stdout == example

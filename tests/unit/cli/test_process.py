"""Promise: as a real process the command line starts light and keeps its output clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anydim.cli.app import COMMANDS
from tests.unit.cli import tiny

SOURCE = str(Path(__file__).resolve().parents[3] / "src")
HEAVY = ("onnx", "llvmlite", "onnxruntime", "torch")  # what help must not wait for


def anydim(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    known = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, "-m", "anydim", *arguments],
        env={**known, "PYTHONPATH": SOURCE, "COLUMNS": "80", **variables},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write(tmp_path_factory.mktemp("process") / "tiny.onnx"))


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    heavy = (*HEAVY, "anydim.compiler.pipeline", *(("numpy", "rich") if not words else ()))
    program = (
        "import sys, anydim.cli\n"
        f"try: anydim.cli.main([*{words}, '--help'])\n"
        "except SystemExit: pass\n"
        "print('heavy:', [name for name in sys.argv[1:] if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, *heavy]
    variables = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_results_and_progress_do_not_mix(model: str) -> None:
    done = anydim("plan", model, "--dim", "n=0..9", "--at", "n=9")
    assert done.returncode == 0
    assert done.stdout.startswith("tiny at n=9\n") and "compil" not in done.stdout
    assert done.stderr.split("\n")[0] == "compiling tiny.onnx"
    assert "\x1b" not in done.stdout + done.stderr
    assert anydim("plan", model, "--at", "n=9", "-q").stderr == ""


def test_an_error_is_plain_and_has_its_exit_code(model: str) -> None:
    done = anydim("plan", model, "--at", "m=9", "--quiet")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "error: tiny has no dim 'm'\n  the dims are 'n'\n"


def test_a_reader_that_stops_early_is_no_error(model: str) -> None:
    command = f"{sys.executable} -m anydim show {model} --stage kernels | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.stdout.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_bar_that_goes_away(model: str) -> None:
    done = in_terminal([sys.executable, "-m", "anydim", "plan", model, "--at", "n=9"])
    assert "━" in done and "\x1b[2K" in done  # drawn, and erased
    assert "compiled tiny.onnx" in done and "\x1b[1mtiny at n=9" in done
    plain = in_terminal(
        [sys.executable, "-m", "anydim", "plan", model, "--at", "n=9"], NO_COLOR="1", TERM="dumb"
    )
    assert "━" not in plain and "\x1b" not in plain and "tiny at n=9" in plain


def in_terminal(command: list[str], **variables: str) -> str:
    import pty

    leader, follower = pty.openpty()
    known = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower,
        env={**known, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", **variables},
    )  # fmt: skip
    os.close(follower)
    parts = []
    try:
        while part := os.read(leader, 65536):
            parts.append(part)
    except OSError:  # how a pseudo-terminal ends
        pass
    os.close(leader)
    assert process.wait(60) == 0
    return b"".join(parts).decode()

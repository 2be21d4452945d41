"""Promise: the demonstration runs to its end and what it says of itself is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STREAM = re.compile(r"  (one at a time|batches of \d+) +\d+ +\d+ ")
MEMORY = re.compile(r"  batch=\d+, seq=\d+ +(\d+) +(\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def shown() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.minilm.demo", "--fast"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_it_ends_well(shown) -> None:
    assert shown.returncode == 0, shown.stderr
    last = shown.stdout.rstrip().split("\n")[-1]
    served = re.fullmatch(r"1 compile served (\d+) sizes", last)
    assert served and int(served[1]) > 20


def test_a_plain_log_where_there_is_no_terminal(shown) -> None:
    assert "\x1b" not in shown.stdout + shown.stderr
    assert "compiling minilm" in shown.stderr and "compiling" not in shown.stdout
    assert max(map(len, shown.stdout.split("\n"))) <= 80


def test_what_was_predicted_was_measured(shown) -> None:
    rows = MEMORY.findall(shown.stdout)
    assert len(rows) == 5
    assert all(predicted == measured for predicted, measured in rows)


def test_it_agrees_with_the_other_engine(shown) -> None:
    assert len(STREAM.findall(shown.stdout)) == 3
    (worst,) = re.findall(r"largest difference .*: (\S+)", shown.stdout)
    assert float(worst) <= 1e-4


def test_wrong_options_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.minilm.demo", "--threads", "0"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "error: threads is 0" in done.stderr and "Traceback" not in done.stderr

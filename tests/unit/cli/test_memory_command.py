"""Promise: the command line shows memory as a formula, refuses above a limit, prints documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anydim.cli.app import main

CHAIN = """
def chain(float(N,16) x, float(16,16) w) -> (y) {
  h(n,j) +=! x(n,k) * w(k,j)
  y(n,j) +=! h(n,k) * w(k,j)
}
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "two.tc").write_text(CHAIN, "utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, words, prog_name="anydim")
        assert result.exit_code == code, result.output
        return result

    return run


def test_memory_shows_formula_bound_peaks_and_what_fits(call) -> None:
    out = call("memory", "two.tc:chain", "--dim", "N=0..900", "--within", "1 KiB", "-q").stdout
    lines = out.splitlines()
    assert lines[1].split()[0] == "bytes" and "N" in lines[1]
    assert "bound" in out and "for N=0..900" in out and "lower bound" in out
    assert lines[-1].split()[:2] == ["1", "KiB"]
    at = call("memory", "two.tc:chain", "--at", "N=7", "--within", "1 TiB", "-q").stdout
    assert "N=7" in at and "bound      none" in at


def test_a_plan_as_json(call) -> None:
    words = ("plan", "two.tc:chain", "--at", "N=7", "--at", "N=8", "--json", "-q")
    made = [json.loads(line) for line in call(*words).stdout.splitlines()]
    assert [plan["dims"][0]["size"] for plan in made] == [7, 8]


def test_a_memory_limit(call) -> None:
    words = (
        "plan",
        "two.tc:chain",
        "--dim",
        "N=0..100000",
        "--at",
        "N=1",
        "--memory-limit",
        "64 kB",
    )
    error = call(*words, code=2).stderr
    assert "a call may take" in error and "above the memory limit of 64000 bytes" in error
    error = call("plan", "two.tc:chain", "--at", "N=1", "--memory-limit", "much", code=2).stderr
    assert "memory_limit is 'much', expected a number of bytes" in error

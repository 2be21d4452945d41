"""Promise: a definition in a file is run, planned, explained, shown and checked like a model."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner, Result

from anydim.cli import main

TEXT = """def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scan(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.tc").write_text(TEXT)
    (tmp_path / "wrong.tc").write_text("def f(float(N) x) -> (y) { y(i) = x(i) + }")
    a = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    numpy.savez(tmp_path / "in.npz", A=a, B=a.T)

    def run(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, line.split(), prog_name="anydim")
        assert result.exit_code == code, result.output
        return result

    return run


def test_run(call, tmp_path: Path) -> None:
    call("run kernels.tc:matmul --input in.npz --output out.npz")
    a = numpy.load(tmp_path / "in.npz")["A"]
    numpy.testing.assert_allclose(numpy.load(tmp_path / "out.npz")["C"], a @ a.T)
    assert "[5, 3]" in call("run kernels.tc:scan --at T=5,C=3").stdout


def test_plan_explain_show_check(call) -> None:
    assert "matmul at K=4, M=3, N=5" in call("plan kernels.tc:matmul --at M=3,K=4,N=5").stdout
    said = " ".join(call("explain kernels.tc:scan").stdout.split())
    assert "y(t - 1, c) is read 1 turn after it is written as y(t, c)" in said
    assert "for r0 in 0:p0" in call("show kernels.tc:scan --stage kernels").stdout
    checked = call("check kernels.tc:scan --dim T=0..9 --dim C=0..40 --samples 10").stdout
    assert "10 samples: agree" in checked


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run kernels.tc --at M=1", "does not have one definition"),
        ("plan kernels.tc:matmull --at M=1", "did you mean 'matmul'?"),
        ("explain nothing.tc:f", "cannot read 'nothing.tc'"),
        ("explain wrong.tc:f", "wrong.tc:1:"),
        ("run kernels.tc:scan --dim Q=3 --at T=1", "has no dim 'Q'"),
    ],
)
def test_mistakes_are_told(call, line: str, words: str) -> None:
    assert words in " ".join(call(line, 2).stderr.split())

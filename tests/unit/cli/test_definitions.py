"""Promise: a definition in a file is run, planned, explained, shown and checked like a model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner, Result

from anydim.cli.app import main

TEXT = """def norm(T(...b,C) x, T by; float eps, bool on = true) -> (y) {
  square(...b) +=! x(...b,c) * x(...b,c)
  y(...b,c) = on ? by * x(...b,c) * rsqrt(square(...b) / T(C) + eps) : x(...b,c)
}
def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scan(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.tc").write_text(TEXT, "utf-8")
    (tmp_path / "wrong.tc").write_text("def f(float(N) x) -> (y) { y(i) = x(i) + }", "utf-8")
    a = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    numpy.savez(tmp_path / "in.npz", A=a, B=a.T)
    numpy.save(tmp_path / "x.npy", numpy.arange(24.0).reshape(2, 3, 4))
    (tmp_path / "empty.tc").write_text("# nothing yet", "utf-8")

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
    said = " ".join(call("explain kernels.tc:scan --details").stdout.split())
    assert "y(t - 1, c) is read 1 iteration after it is written as y(t, c)" in said
    assert "for r0 in 0:p0" in call("show kernels.tc:scan --stage kernels").stdout
    checked = call("check kernels.tc:scan --dim T=0..9 --dim C=0..40 --samples 10").stdout
    assert "10 calls at " in checked and "agree" in checked
    assert "evaluator in float64: it shares the resolver with the compiler" in checked


def test_types_ranks_and_numbers_come_from_the_inputs(call, tmp_path: Path) -> None:
    call("run kernels.tc:norm --input x=x.npy --input by=2 --attribute eps=0.5 --output out.npz")
    x = numpy.load(tmp_path / "x.npy")
    wanted = 2 * x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 0.5)
    found = numpy.load(tmp_path / "out.npz")["y"]
    assert found.dtype == numpy.float64
    numpy.testing.assert_allclose(found, wanted, rtol=1e-12)
    call("run kernels.tc:norm --input x=x.npy --input by=2 --attribute eps=1 --attribute on=false "
         "--output out.npz")  # fmt: skip
    numpy.testing.assert_array_equal(numpy.load(tmp_path / "out.npz")["y"], x)
    said = call("explain kernels.tc:norm --input x=x.npy --attribute eps=1").stdout
    assert "x: float64[b.2, b.1, C]" in said
    assert "work" in call("plan kernels.tc:matmul --input in.npz").stdout
    assert "matmul at K=4, M=3, N=3" in call("plan kernels.tc:matmul --input in.npz").stdout


def test_types_and_ranks_are_given(call) -> None:
    said = call("explain kernels.tc:norm --type T=half --attribute b=0 --attribute eps=1").stdout
    assert "x: float16[C]" in said
    checked = call(
        "check kernels.tc:norm --type T=double --attribute b=2 --attribute eps=0.5 --samples 6 "
        "--dim C=0..9 --dim b.1=0..3 --dim b.2=0..3"
    )
    assert "6 calls at " in checked.stdout and "agree" in checked.stdout
    assert "values of y float64" in checked.stdout


def test_the_help_and_the_page_can_be_followed(call, tmp_path: Path) -> None:
    """Definitions and commands as `anydim --help` and docs/definitions.md have them."""
    page = Path(__file__).parents[3].joinpath("docs/definitions.md").read_text("utf-8")
    for text, file in ((call("--help").stdout, "kernels.tc"), (page, "norm.tc")):
        definition = re.search(r"^ +def norm\(.*?\n +\}\n", text, re.M | re.S)
        assert definition is not None
        (tmp_path / file).write_text(definition[0], "utf-8")
        lines = re.findall(rf"^ +anydim (\w+ {file}.*)$", text, re.M)
        assert len(lines) >= 4
        for line in lines:
            call(line.replace("--samples 20", "--samples 5"))
        assert (tmp_path / "out.npz").exists()
        (tmp_path / "out.npz").unlink()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run kernels.tc --at M=1", "kernels.tc has 3 definitions: which one is meant?"),
        ("run kernels.tc --at M=1", "kernels.tc:scan(float(T, C) x) -> (y)"),
        ("run nothing.tc --at M=1", "cannot read 'nothing.tc'"),
        ("run empty.tc --at M=1", "empty.tc has no definition write one: def f("),
        ("explain kernels.tc:norm", "norm needs attribute 'eps' (float)"),
        ("explain kernels.tc:norm --attribute eps=x", "is of kind float, and 'x' is not"),
        ("explain kernels.tc:norm --attribute esp=1", "did you mean 'eps'?"),
        ("explain kernels.tc:norm --attribute eps", "such as --attribute eps=1e-5"),
        ("explain kernels.tc:norm --attribute eps=1 --attribute eps=2", "eps is given twice"),
        ("explain kernels.tc:norm --attribute eps=1 --type U=half", "no type variable 'U'"),
        ("explain kernels.tc:norm --attribute eps=1 --type T=haff", "did you mean 'half'?"),
        ("explain model.onnx --type T=half", "--type works with definitions only"),
        ("plan kernels.tc:matmul", "give --at K=SIZE,M=SIZE,N=SIZE, or --input FILE.npz"),
        ("run kernels.tc:norm --attribute eps=1 --input x=half", "half cannot be read"),
        ("plan kernels.tc:matmull --at M=1", "did you mean 'matmul'?"),
        ("explain nothing.tc:f", "cannot read 'nothing.tc'"),
        ("explain wrong.tc:f", "wrong.tc:1:"),
        ("run kernels.tc:scan --dim Q=3 --at T=1", "has no dim 'Q'"),
    ],
)
def test_mistakes_are_told(call, line: str, words: str) -> None:
    assert words in " ".join(call(line, 2).stderr.split())

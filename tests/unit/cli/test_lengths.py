"""Promise: `--lengths` times and explains rows of unlike lengths as they are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner, Result

import anydim as ad
from anydim.base.errors import DimError, OptionError
from anydim.cli.app import main
from anydim.cli.lengths import LengthsType, RowSizes
from anydim.runtime.program.padding import natural
from tests.unit.cli import tiny

BENCH = "bench rows.onnx --rounds 2 --seconds 0.02 --integers ids=0..4 --threads 1"
Call = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lengths")
    tiny.write_rows(path / "rows.onnx")
    tiny.write(path / "tiny.onnx")
    (path / "sizes.txt").write_text("4\n\n1\n 9 \n", "utf-8")
    (path / "none.txt").write_text("\n", "utf-8")
    return path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(folder)

    def run(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, line.split(), prog_name="anydim")
        assert result.exit_code == code, result.output
        return result

    return run


def test_lengths_are_written_in_three_forms(folder: Path) -> None:
    def read(text: str) -> RowSizes:
        return LengthsType().convert(text, None, None)

    assert read("natural").natural == 32 and read("natural:64").natural == 64
    assert read("3, 17,300").rows == ((3,), (17,), (300,))
    assert read("32x100,32x64").rows == ((32, 100), (32, 64))
    assert read(str(folder / "sizes.txt")).rows == ((4,), (1,), (9,))
    for text, problem in (
        ("3,x", "expected sizes of rows, or a file: No such file"),
        ("natural:x", "expected sizes"),
        ("nowhere.txt", "No such file"),
        (str(folder / "none.txt"), "has no rows"),
        (str(folder / "rows.onnx"), "expected sizes of rows, or a file|is no size"),
    ):
        with pytest.raises(OptionError, match=problem):
            read(text)


def test_natural_lengths_are_within_bounds_and_the_same_again() -> None:
    (sizes,) = natural([ad.Dim("seq", 1, 512)], 5000).values()
    assert natural([ad.Dim("seq", 1, 512)], 5000) == {"seq": sizes}
    assert 21 <= numpy.median(sizes) <= 23 and 60 <= numpy.quantile(sizes, 0.95) <= 74
    (few,) = natural([ad.Dim("seq", 8, 20)], 100).values()
    assert min(few) == 8 and max(few) == 20


def test_bench_of_rows(call: Call) -> None:
    pytest.importorskip("onnxruntime")
    line = f"{BENCH} --lengths natural:5 --lengths 3,17,1 --lengths sizes.txt"
    text = call(f"{line} --against onnxruntime").stdout
    header, *lines = text.rstrip().split("\n")
    assert header.split()[:4] == ["lengths", "calls", "rows", "total"]
    assert [each.split()[0] for each in lines[::5]] == ["natural:5", "3,17,1", "sizes.txt"]
    assert lines[5].split()[:5] == ["3,17,1", "ragged", "3", "21", "0.41"]
    for each, name in zip(lines[6:8], ("padded", "one by one")):
        assert each.strip().startswith(name)
    assert all("onnx" in each for each in lines[8:10])
    assert float(lines[2].split()[-1]) < 1e-6


def test_explain_shows_the_cost_of_padding(call: Call) -> None:
    text = call("explain rows.onnx --lengths 3,17,1").stdout
    assert "'seq' of each row of 'batch'" in text and "'mask' may be omitted" in text
    assert (
        "3 rows of 1..17, and this program on the same rows padded" in text
        and "padded" in text
        and "memory" in text
    )
    example = call("explain rows.onnx --ragged auto").stdout
    assert "32 rows of " in example and "as of sentences" in example
    assert "padded" not in call("explain rows.onnx").stdout


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        (f"{BENCH} --lengths 3,x", "--lengths 3,x: expected sizes", "natural, natural:64"),
        (f"{BENCH} --lengths 3x4", "a row has 2 sizes, and 1 dim", "write SIZE,SIZE"),
        (f"{BENCH} --dim seq=1..8 --lengths 3,9", "row 1: 'seq' is 9", "seq=1..8"),
        (f"{BENCH} --lengths 3 --at seq=1 --at seq=2", "--at is given twice", "once"),
        ("bench f.tc:f --lengths 3", "a padded call needs an ONNX file", "--onnx"),
        ("bench tiny.onnx --lengths 3", "have no free sizes", ""),
        ("explain rows.onnx --lengths 3x4", "a row has 2 sizes", ""),
    ],
)
def test_lengths_that_do_not_fit(call: Call, line: str, problem: str, hint: str) -> None:
    text = call(line, code=2).stderr
    assert problem in text and hint in text


def test_plans_of_rows_count_the_work_of_each_row() -> None:
    g = ad.Builder("scores")
    batch, seq = g.dim("batch"), g.dim("seq", 0, 100)
    x = g.input("x", ad.float32, (batch, seq, 8))
    g.output("y", g.softmax(g.matmul(x, g.transpose(x, perm=(0, 2, 1))), axis=-1))
    model = ad.compile(g, ragged="auto")
    alone = {n: model.plan(lengths=[n]).flops for n in (1, 5, 60)}
    assert model.plan(lengths=[1, 5, 60, 5]).flops == alone[1] + 2 * alone[5] + alone[60]
    assert model.plan(lengths=[60, 60]).flops == 2 * alone[60]
    text = model.explain(lengths=[1, 60])
    assert f"{(alone[1] + alone[60]) / (2 * alone[60]):.2f}" in text
    with pytest.raises(DimError, match="row 0: 'seq' is 101"):
        model.explain(lengths=[101])
    with pytest.raises(OptionError, match="no ragged dims"):
        ad.compile(g).explain(lengths=[1])

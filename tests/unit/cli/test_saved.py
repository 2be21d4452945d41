"""Promise: what `anydim compile` writes serves the other commands as the model itself does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner, Result

import anydim as ad
from anydim.cli.app import main
from anydim.compiler.targets.processor import describe_processor
from anydim.deploy.container import FORMAT, LOCAL, MANIFEST
from anydim.runtime.cpu import this_level
from tests.unit.cli import tiny

X86 = this_level().architecture == "x86_64"
LOWEST, FOREIGN = ("x86-64-v2", "aarch64") if X86 else ("aarch64", "x86-64-v2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, what it is saved as for three processors, and inputs."""
    path = tmp_path_factory.mktemp("saved")
    tiny.write(path / "tiny.onnx")
    numpy.savez(path / "in.npz", **tiny.feeds(7))
    (path / "twice.tc").write_text("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }", "utf-8")
    arguments = ["compile", str(path / "tiny.onnx"), "-o", str(path / "tiny.anydim"), "--dim",
                 "n=0..9", "--target", "native", "--target", LOWEST, "--target",
                 FOREIGN]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "compiled tiny.onnx for n=0..9" in result.stderr
    assert "saving tiny.anydim" in result.stderr
    assert f"for 'native', '{LOWEST}', '{FOREIGN}' in" in result.stderr
    return path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)

    def run(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, line.split(), prog_name="anydim")
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.mark.parametrize("level", ["", f"--level {LOWEST}"])
def test_run(call, folder: Path, level: str) -> None:
    result = call(f"run tiny.anydim --input in.npz --output out.npz {level}")
    made = numpy.load(folder / "out.npz")
    numpy.testing.assert_allclose(made["y"], tiny.expected(**tiny.feeds(7)), rtol=1e-6)
    assert f"loaded tiny.anydim for {level[8:] or 'native'} in" in result.stderr
    assert "float32  [7, 4]" in result.stdout


def test_random_inputs_are_those_of_the_model(call) -> None:
    """Indices among them: the file says where they have to lie."""
    line = "run {} --at n=9 --random 3 -q"
    tables = [call(line.format(name)).stdout.split("\n\n")[1] for name in NAMES]
    assert tables[0] == tables[1]


NAMES = ("tiny.onnx --dim n=0..9", "tiny.anydim")


@pytest.mark.parametrize("line", ["plan {} --at n=0 --at n=9 -q", "plan {} --input in.npz -q",
                                  "plan {} --at n=9 --launches -q", "explain {} -q"])  # fmt: skip
def test_what_is_said_of_it_is_what_is_said_of_the_model(call, line: str) -> None:
    texts = [call(line.format(name)).stdout for name in NAMES]
    assert texts[0] == texts[1] and texts[0]


def test_bench(call) -> None:
    text = call("bench tiny.anydim --at n=3 --rounds 1 --seconds 0.01").stdout
    assert "n=3" in text and "anydim" in text
    line = "bench tiny.anydim --at n=3 --rounds 1 --seconds 0.01 --against onnxruntime"
    result = call(line, code=2)
    assert "it cannot run tiny.anydim, a saved model" in result.stderr
    assert "--onnx encoder.onnx" in result.stderr
    assert "ratio" in call(f"{line} --onnx tiny.onnx").stdout


def test_inspect(call, folder: Path) -> None:
    text = call("inspect tiny.anydim").stdout
    for expected in (
        f"tiny.anydim: tiny, format {FORMAT}, {(folder / 'tiny.anydim').stat().st_size} bytes",
        "dims      n=0..9",
        "inputs    ids: int64[n]",
        "x: float32[n, 4]",
        "outputs   y: float32[n, 4]",
        f"weights   {tiny.TABLE.nbytes} bytes in 1 constant",
        "selected",
        "can run it",
        "cannot run it",
    ):
        assert expected in text
    assert call("inspect tiny.anydim --verify").stdout == text


def test_inspect_has_the_lines_of_a_long_formula(call, folder: Path) -> None:
    g = ad.Builder("long")
    dims = [g.dim(f"a_rather_long_name_{n}", 0) for n in range(8)]
    for n, dim in enumerate(dims):
        x = g.input(f"x{n}", ad.float32, (dim, 8))
        g.output(f"y{n}", g.softmax(g.matmul(x, g.transpose(x, perm=[1, 0])), axis=-1))
    model = ad.compile(g, threads=1)
    model.save(folder / "long.anydim")
    lines = call("inspect long.anydim").stdout.splitlines()
    wanted = " ".join(" ".join(model.memory.lines()).split())
    assert wanted in " ".join(" ".join(lines).split())
    assert not [line for line in lines if "  " in line.strip() and line.startswith(" " * 12)]


def test_inspect_in_python(folder: Path) -> None:
    contents, model = ad.inspect(folder / "tiny.anydim"), ad.load(folder / "tiny.anydim")
    assert (contents.dims, contents.inputs, contents.outputs) == (
        model.dims, model.inputs, model.outputs,
    )  # fmt: skip
    assert contents.taken is not None and contents.taken.level == model.level
    assert str(contents.taken.memory) == str(model.memory)
    assert {each.level.name for each in contents.levels} == {"native", LOWEST, FOREIGN}
    assert [each.runs_here for each in contents.levels if each.level.name == FOREIGN] == [False]
    assert all(each.weight_bytes == tiny.TABLE.nbytes for each in contents.levels)
    assert all(each.code_bytes > 0 and each.record_bytes > 0 for each in contents.levels)


def test_a_saved_model_is_checked_against_its_file(call, folder: Path) -> None:
    text = call("check tiny.anydim --samples 6 --against tiny.onnx").stdout
    assert "agree" in text.splitlines()[0] and "reference evaluator" in text


def test_a_changed_file(call, folder: Path) -> None:
    data = bytearray((folder / "tiny.anydim").read_bytes())
    at = data.index(tiny.TABLE.tobytes())
    data[at] ^= 1
    (folder / "changed.anydim").write_bytes(data)
    assert "does not match its" in call("inspect changed.anydim --verify", code=2).stderr
    data[LOCAL.size + len(MANIFEST) + 4] += 1  # the number of the format
    (folder / "newer.anydim").write_bytes(data)
    for command in ("inspect newer.anydim", "run newer.anydim --at n=1"):
        error = call(command, code=2).stderr
        assert f"has format {FORMAT + 1}, this version of anydim reads format {FORMAT}" in error
    (folder / "cut.anydim").write_bytes(data[:200])
    assert "cut.anydim" in call("run cut.anydim --at n=1", code=2).stderr


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize(
    "line, expected",
    [
        ("inspect none.anydim", "none.anydim"),
        ("run none.anydim --at n=1", "none.anydim"),
        ("run tiny.anydim --at n=1 --dim n=0..5", "--dim works when a model is compiled"),
        (
            "run tiny.anydim --at n=1 --threads 2",
            "threads is 2, and tiny.anydim was compiled for 1",
        ),
        ("run tiny.anydim --at n=10", "above its bound 9"),
        ("run tiny.anydim --at n=1 --level x86-64-v9", "no code for 'x86-64-v9'"),
        (f"run tiny.anydim --at n=1 --level {FOREIGN}", "no code that this machine can run"),
        ("run tiny.onnx --at n=1 --level native", "tiny.onnx is compiled for this machine"),
        ("check tiny.anydim", "name the ONNX file that it was compiled from: --against FILE.onnx"),
        ("show tiny.anydim", "showing stages needs what it was compiled from"),
        ("show tiny.anydim --stage fuse", "showing stages needs what it was compiled from"),
        ("compile tiny.anydim -o again.anydim", "compiling needs what it was compiled from"),
        ("compile tiny.onnx", "missing option '-o' / '--output'"),
        ("compile tiny.onnx -o .", "is a folder"),
        ("compile tiny.onnx -o none/tiny.anydim", "folder none does not exist"),
        ("compile tiny.onnx -o x --target x86-64-v33", "did you mean 'x86-64-v3'?"),
        ("compile tiny.onnx -o x --target x86-64-v4+vni", "there is 'x86-64-v4+vnni'"),
        ("compile tiny.onnx -o x --target vax", "the processors are 'native', 'x86-64-v2'"),
        ("inspect tiny.onnx --verify", "--verify needs a saved model"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_what_to_do(call, line: str, expected: str) -> None:
    error = call(line, code=2).stderr
    assert expected in error and "error: " in error


def test_a_definition(call, folder: Path) -> None:
    call("compile twice.tc:twice -o twice.anydim -q")
    model = ad.load(folder / "twice.anydim")
    numpy.testing.assert_array_equal(model(x=numpy.arange(3, dtype=numpy.float32))["y"], [0, 2, 4])


def test_what_a_source_holds(call) -> None:
    text = call("inspect tiny.onnx").stdout
    assert text.splitlines() == [
        "tiny.onnx: tiny, 3 nodes",
        "  dims      n=0..",
        "  inputs    ids: int64[n]",
        "            x: float32[n, 4]",
        "  outputs   y: float32[n, 4]",
        f"  weights   {tiny.TABLE.nbytes} bytes in 1 constant",
        "  operators Add 1, Gather 1, Relu 1",
        "  written   unknown, opset 18, IR 9",
    ]
    assert "x: float32[N]" in call("inspect twice.tc:twice").stdout


def test_the_help_names_processors_that_there_are(call) -> None:
    words = call("compile --help").stdout.replace(",", " ").replace(";", " ").split()
    names = [word for word in words if word.startswith(("x86-64", "aarch64"))]
    assert len(names) > 5 and all(describe_processor(name) for name in names)


def test_a_saved_model_needs_no_compiler(folder: Path) -> None:
    script = (
        "import json, sys, anydim.cli\n"
        "try: anydim.cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    source = Path(ad.__file__).parents[1]
    command = [sys.executable, "-c", script, "run", str(folder / "tiny.anydim"), "--at", "n=2"]
    done = subprocess.run(command, env={"PYTHONPATH": str(source)}, capture_output=True, text=True)
    modules = json.loads(done.stdout.splitlines()[-1])
    assert "loaded tiny.anydim" in done.stderr
    heavy = (
        "onnx",
        "llvmlite",
        "anydim.compiler.pipeline",
        "anydim.compiler.progress",
        "anydim.compiler.kernels",
        "anydim.compiler.graph",
    )
    assert not [name for name in modules if name in heavy]

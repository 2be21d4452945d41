"""Promise: every command does what its help says, and fails with a text and an exit code."""

from __future__ import annotations

import errno
import io
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

import anydim as ad
from anydim.base.errors import InternalError
from anydim.cli import compiling
from anydim.cli import main as entry
from anydim.cli.app import COMMANDS, main
from anydim.cli.developing import PASS_STAGES, STAGES
from anydim.cli.report import peers
from anydim.compiler.pipeline import PASSES
from anydim.runtime.program.profile.limits import Limits
from tests.unit.cli import tiny


def _header(shape: tuple[int, ...]) -> bytes:
    """A file of numpy.save with an array of this shape, without the array."""
    file = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    numpy.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    tiny.write(path / "tiny.onnx")
    numpy.savez(path / "in.npz", **tiny.feeds(7))
    for name, array in tiny.feeds(3).items():
        numpy.save(path / f"{name}.npy", array)
    (path / "text.npz").write_text("not an array", "utf-8")
    numpy.savez_compressed(path / "damaged.npz", x=numpy.arange(1000.0))
    held = bytearray((path / "damaged.npz").read_bytes())
    held[len(held) // 2] ^= 255
    (path / "damaged.npz").write_bytes(held)
    (path / "huge.npy").write_bytes(_header((99999999999999,)))
    numpy.save(path / "objects.npy", numpy.array([{}], object), allow_pickle=True)
    return path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)

    def run(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, line.split(), prog_name="anydim")
        assert result.exit_code == code, result.output
        return result

    return run


def test_run_on_a_file_with_all_inputs(call, folder: Path) -> None:
    result = call("run tiny.onnx --dim n=0..9 --input in.npz --output out.npz")
    made = numpy.load(folder / "out.npz")
    numpy.testing.assert_allclose(made["y"], tiny.expected(**tiny.feeds(7)), rtol=1e-6)
    assert made.files == ["y"]
    assert "float32  [7, 4]" in result.stdout and "largest" in result.stdout
    assert "compil" not in result.stdout
    assert "compiled tiny.onnx for n=0..9 in" in result.stderr and "wrote out.npz" in result.stderr


def test_run_on_one_file_for_each_input(call, folder: Path) -> None:
    call("run tiny.onnx --input ids=ids.npy --input x=x.npy --output named.npz -q")
    y = numpy.load(folder / "named.npz")["y"]
    numpy.testing.assert_allclose(y, tiny.expected(**tiny.feeds(3)), rtol=1e-6)


def test_run_on_random_inputs(call) -> None:
    line = "run tiny.onnx --at n={} --random {} --integers ids=0..4 -q"
    tables = [call(line.format(n, seed)).stdout.split("\n\n")[1] for n, seed in ((5, 1), (5, 2))]
    assert tables[0] != tables[1]
    assert tables[0] == call(line.format(5, 1)).stdout.split("\n\n")[1]
    assert "[0, 4]      -" in call(line.format(0, 1)).stdout


def test_a_dim_of_one_size_needs_no_size(call) -> None:
    for at in ("--at=", ""):
        assert "at n=3" in call(f"run tiny.onnx --dim n=3 {at} --integers ids=0..4").stdout


def test_a_model_without_free_dims_needs_no_sizes(call, folder: Path, measured: None) -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "one", values[:1], values[1:]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "one.onnx").write_bytes(made.SerializeToString())
    assert "at its only size" in call("run one.onnx").stdout
    assert "its only size" in call("bench one.onnx --rounds 2 --seconds 0.01").stdout
    for command in ("plan", "profile", "trace", "memory"):
        assert call(f"{command} one.onnx").stdout
    assert not call("check one.onnx").stdout.rstrip().endswith("at")


def test_plan(call) -> None:
    text = call("plan tiny.onnx --dim n=0..9 --at n=0 --at n=9").stdout
    model = ad.compile("tiny.onnx", {"n": ad.Dim(0, 9)})
    assert f"arena {model.plan(n=9).bytes} bytes" in " ".join(text.split())
    assert "tiny at n=0\n" in text and "tiny at n=9\n" in text
    assert "outputs" in text and "144 bytes" in text
    assert "add +1" in call("plan tiny.onnx --at n=9 --launches").stdout


def test_a_plan_is_drawn(call, folder: Path) -> None:
    assert "tiny at n=9" in call("plan tiny.onnx --dim n=0..9 --plot plan.html").stdout
    assert "tiny at n=9" in (folder / "plan.html").read_text("utf-8")
    assert "without upper bound" in call("plan tiny.onnx --plot plan.svg", 2).stderr
    assert (
        "draws a single plan" in call("plan tiny.onnx --at n=1 --at n=2 --plot plan.svg", 2).stderr
    )
    assert "pictures are .svg" in call("plan tiny.onnx --plot plan.pdf", 2).stderr


def test_explain(call) -> None:
    text = call("explain tiny.onnx --dim n=0..9").stdout
    assert "  dims      n=0..9\n" in text and "because:" not in text
    text = call("explain tiny.onnx --dim n=0..9 --details").stdout
    assert "  dims      n=0..9\n" in text and text.count("because:") == text.count("kernel ") > 0
    kernel = text.partition("\nkernel ")[2].partition(":")[0]
    alone = call(f"explain tiny.onnx --dim n=0..9 --kernel {kernel}").stdout
    assert alone.startswith(f"kernel {kernel}: ") and alone.count("because:") == 1
    assert "matches 'nothing'" in call("explain tiny.onnx --kernel nothing", code=2).stderr


def test_stages_are_those_of_the_compiler() -> None:
    assert tuple(entry.name for entry in PASSES) == PASS_STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_show_each_stage(call, stage: str) -> None:
    text = call(f"show tiny.onnx --stage {stage}").stdout
    assert text.strip() == ad.compile("tiny.onnx").show(stage).strip() != ""


def test_check(call) -> None:
    text = call("check tiny.onnx --dim n=0..9 --samples 8 --integers ids=0..4").stdout
    assert text.startswith("8 calls at 8 sizes (3 of them corners, 5 random; seed 0): agree\n")
    assert f"against onnx {onnx.__version__}'s reference evaluator: it computes in" in text
    assert "compared types, shapes and values of y float32\n" in text
    assert "allowed: float32 7.6e-06, or 64 times numpy's own error\n" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("oracle, said", [
    ("reference", "reference evaluator: it computes in the types of the file"),
    ("evaluator", "evaluator in float64: it shares the import with the compiler"),
    ("tiny.onnx", "reference evaluator: it computes in the types of the file"),
])  # fmt: skip
def test_check_against_what_is_named(call, oracle: str, said: str) -> None:
    text = call(f"check tiny.onnx --dim n=1..9 --samples 4 --against {oracle}").stdout
    assert "agree" in text and said in text


@pytest.mark.parametrize("oracle, said", [
    ("evaluators", "there is no oracle or file 'evaluators'"),
    ("tvm", "there is no oracle or file 'tvm'"),
])  # fmt: skip
def test_what_cannot_be_compared_with(call, oracle: str, said: str) -> None:
    error = call(f"check tiny.onnx --samples 4 --against {oracle}", code=2).stderr
    assert said in error and "or the path of an ONNX file" in error


def test_indices_are_drawn_from_where_they_have_to_lie(call) -> None:
    assert "agree" in call("check tiny.onnx --dim n=0..9 --samples 8").stdout
    text = call("check tiny.onnx --dim n=1..9 --samples 8 --integers ids=5..5", code=1).stdout
    assert "nothing was compared" in text and "8 more calls rejected by model and oracle" in text


def test_check_that_fails_exits_with_1(call, monkeypatch: pytest.MonkeyPatch) -> None:
    good = compiling.compile

    def bad(*args, **options):
        model = good(*args, **options)
        known = model._compiled
        moved = lambda inputs: {"y": known.reference(inputs)["y"] + 1}  # noqa: E731
        # what numpy makes of it in float32 is as far away
        vars(model)["_compiled"] = replace(known, reference=moved, plain=moved)
        return model

    monkeypatch.setattr(compiling, "compile", bad)
    text = call("check tiny.onnx --dim n=1..9 --samples 4 --against evaluator", code=1).stdout
    assert "differ" in text and "output 'y' at n = " in text


def test_bench(call) -> None:
    pytest.importorskip("onnxruntime")
    line = "bench tiny.onnx --at n=5 --at n=0 --rounds 3 --seconds 0.02 --integers ids=0..4"
    text = call(f"{line} --against onnxruntime").stdout
    header, five, zero = text.rstrip().split("\n")
    assert header.split() == ["sizes", "anydim", "onnxruntime", "ratio", "largest", "diff"]
    assert five.split()[0] == "n=5" and five.split()[-1] == "0.0e+00" and zero.split()[0] == "n=0"
    assert len(call(line).stdout.split("\n")[0].split()) == 2


def test_bench_without_the_peer(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    text = call("bench tiny.onnx --at n=5 --against onnxruntime", code=2).stderr
    assert "onnxruntime is not installed\n  pip install onnxruntime" in text


def test_a_peer_that_cannot_run_the_model(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str, threads: int):
        raise ad.ModelError(f"onnxruntime cannot load {path}: no")

    monkeypatch.setitem(peers.PEERS, "onnxruntime", broken)
    assert (
        "cannot load tiny.onnx: no"
        in call("bench tiny.onnx --at n=5 --against onnxruntime", code=2).stderr
    )


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        ("run", "missing argument 'MODEL'", "see anydim run --help"),
        ("run tiny.onnx --bogus", "no such option '--bogus'", "see anydim run --help"),
        ("shw tiny.onnx", "no such command 'shw'", "did you mean 'show'? see anydim --help"),
        ("quit tiny.onnx", "no such command 'quit'", "see anydim --help"),
        ("show tiny.onnx", "missing option '--stage'", "see anydim show --help"),
        ("show tiny.onnx --stage fues", "'fues' is not one of", "did you mean 'fuse'? see anydim"),
        (
            "bench kernels.tc:f --at n=1 --against onnxruntime",
            "kernels.tc:f, a definition",
            "--onnx",
        ),
        ("run nothing.onnx --at n=1", "nothing.onnx: cannot be read: No such file", ""),
        ("run text.npz --at n=1", "text.npz is not an ONNX model", ""),
        ("run tiny.onnx", "no size is given for 'n'", "--at n=SIZE, or --input FILE.npz"),
        ("plan tiny.onnx", "no size is given for 'n'", "--at n=SIZE, or --input FILE.npz"),
        ("bench tiny.onnx", "no size is given for 'n'", "--at n=SIZE"),
        ("run tiny.onnx --input in.npz --at n=1", "cannot be combined", "determine the sizes"),
        ("run tiny.onnx --input in.npz --random 0", "--random cannot be", "nothing is drawn"),
        ("profile tiny.onnx --input in.npz --seed 1", "--seed cannot be", "nothing is drawn"),
        ("precision tiny.onnx --input in.npz --integers ids=0..1", "--integers cannot be", ""),
        ("run tiny.onnx --at n=1 --at n=2", "--at n is given twice", ""),
        ("run tiny.onnx --at n=1 --integers ids=0..1 --integers ids=2..3", "ids is given", ""),
        ("run tiny.onnx --input x=x.npy --input ids=1.5", "1.5 is no int64", ""),
        ("run tiny.onnx --input x=x.npy --input ids=nan", "nan is no int64", ""),
        ("explain tiny.onnx --at details=1", "--lengths, which is missing", "plan"),
        ("run tiny.onnx --ragged n=a,n=b --at n=1", "--ragged n is given twice", ""),
        ("run tiny.onnx --precision add=int8,add=exact --at n=1", "two values, int8", "first"),
        ("run tiny.onnx --dim m=1..2 --at n=1", "has no dim 'm'", "'n'"),
        ("run tiny.onnx --dim n=1..2 --at n=3", "'n' is 3, above its bound 2", "n=1..2"),
        ("run tiny.onnx --at m=3", "has no dim 'm'", "'n'"),
        ("run tiny.onnx --at=", "dim 'n' has no size", ""),
        ("run tiny.onnx --at n=1 --threads 0", "threads is 0", "1 to 1024"),
        ("run tiny.onnx --input none.npz", "none.npz cannot be read: No such file", "savez"),
        ("run tiny.onnx --input text.npz", "text.npz cannot be read", "numpy.savez"),
        ("run tiny.onnx --input damaged.npz", "damaged.npz cannot be read", "numpy.savez"),
        ("run tiny.onnx --input x=huge.npy", "not enough memory for the arrays in huge.npy", ""),
        ("run tiny.onnx --input objects.npy", "objects.npy cannot be read", "numpy.savez"),
        ("run tiny.onnx --input x.npy", "which input is it?", "--input ids=x.npy"),
        ("run tiny.onnx --input y=in.npz", "in.npz holds 'ids', 'x', not 'y'", ""),
        ("run tiny.onnx --input in.npz --input x=x.npy", "input 'x' is given twice", ""),
        ("run tiny.onnx --input ids=ids.npy", "'x'", ""),
        ("run tiny.onnx --at n=1 --output y.npy", "the file name must end in .npz", "y.npy.npz"),
        ("run tiny.onnx --at n=1 --output no/y.npz", "folder no does not exist", "create it first"),
        ("run tiny.onnx --at n=1 --output .", "--output . is a folder", "results.npz"),
        ("run tiny.onnx --at n=1 --integers id=0..1", "no integer input 'id'", "'ids'"),
        ("check tiny.onnx --integers x=0..1", "no integer input 'x'", "'ids'"),
        ("run tiny.onnx --at n=2 --integers ids=7..7", "index 7 is outside -5..4", "input 'ids'"),
        ("load localhost:1 --chart no/chart.svg", "there is no folder no", "make it"),
        ("check tiny.onnx --samples 0", "invalid value for '--samples'", "see anydim check"),
    ],
)
def test_mistakes(call, line: str, problem: str, hint: str) -> None:
    result = call(line, code=2)
    errors = result.stderr[result.stderr.index("error: ") :].split("\n")
    assert problem in errors[0]
    assert hint in "\n".join(errors[1:])
    assert "Traceback" not in result.output and result.stdout == ""


def test_numbers_of_all_options_are_finite(call) -> None:
    seen = 0
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType) and name != "precision":
                for value in ("nan", "inf", "-1"):
                    line = f"{name} {option.opts[0]} {value} tiny.onnx"
                    assert f"invalid value for '{option.opts[0]}'" in call(line, code=2).stderr
                seen += 1
    assert seen >= 11


def test_outputs_that_do_not_fit_leave_the_old_file(
    call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("run tiny.onnx --at n=3 --output kept.npz")
    kept = (folder / "kept.npz").read_bytes()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numpy, "savez", full)
    assert "No space left" in call("run tiny.onnx --at n=3 --output kept.npz", code=2).stderr
    assert (folder / "kept.npz").read_bytes() == kept
    assert not [path for path in folder.iterdir() if path.name.startswith(".kept")]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InternalError("two and two\nmore"), "two and two"),
        (ZeroDivisionError("two"), "ZeroDivisionError: two"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_our_bugs_say_how_to_report_them(
    call, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args, **options):
        raise error

    monkeypatch.setattr(compiling, "compile", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = call("explain tiny.onnx", code=70).stderr
    (report,) = tmp_path.glob("anydim-report-*.txt")
    assert f"error: a bug of anydim: {said}" in text
    assert f"please report it with the details in {report}" in text and "Traceback" not in text
    details = report.read_text("utf-8")
    assert "Traceback" in details and "anydim explain tiny.onnx" in details
    assert f"anydim {ad.__version__}" in details


def test_an_interrupt(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "compile", stopped)
    assert "error: interrupted" in call("explain tiny.onnx", code=130).stderr

    def wrapped(*args, **options):  # as Python 3.11 does within `__set_name__`
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(compiling, "compile", wrapped)
    assert "error: interrupted" in call("explain tiny.onnx", code=130).stderr


def test_an_interrupt_before_the_commands_are_read_is_one_line(monkeypatch, capsys) -> None:
    class Slow(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt if name == "main" else AttributeError(name)

    monkeypatch.setitem(sys.modules, "anydim.cli.app", Slow("app"))
    with pytest.raises(SystemExit) as ended:
        entry([])
    assert ended.value.code == 130 and capsys.readouterr().err == "error: interrupted\n"


def test_no_words_ask_for_the_help(call) -> None:
    assert call("").stdout == call("--help").stdout


def test_a_warning_is_one_line(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*args, **options):
        warnings.warn("mind the step", RuntimeWarning, stacklevel=1)
        raise ad.ModelError("no")

    monkeypatch.setattr(compiling, "compile", warned)
    assert "\nwarning: mind the step\nerror: no\n" in call("explain tiny.onnx", code=2).stderr


def test_help_of_every_command_has_an_example_that_fits(call) -> None:
    assert call("--version").stdout == f"anydim {ad.__version__}\n"
    for name in ("", *(f"{command} " for command in COMMANDS)):
        text = call(f"{name}--help").stdout
        assert "Example" in text and f"anydim {name}" in text
        assert max(map(len, text.split("\n"))) <= 88


# ---- profile -----------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known = "anydim.runtime.program.profile.limits.read_limits"
    monkeypatch.setattr(known, lambda threads: Limits(threads, 1e18, ((1, 1e18),)))


def test_profile_at_sizes_and_on_files(call, folder: Path, measured: None) -> None:
    text = call("profile tiny.onnx --at n=7 --repeat 3 --trace trace.json").stdout
    assert "tiny at n = 7, 1 thread" in text and "the median of 3" in text and "of limit" in text
    assert json.loads((folder / "trace.json").read_text("utf-8"))["traceEvents"]
    document = json.loads(call("profile tiny.onnx --input in.npz --repeat 1 --json").stdout)
    assert document["sizes"] == {"n": 7} and document["launches"]


def test_traces_at_sizes_and_on_files(call, folder: Path) -> None:
    text = call("trace tiny.onnx --at n=7 --calls 2 --output t.json --html t.html").stdout
    assert "tiny at n = 7" in text and "2 calls" in text
    events = json.loads((folder / "t.json").read_text("utf-8"))["traceEvents"]
    assert sum(event.get("cat") == "call" for event in events) == 2
    assert "</svg>" in (folder / "t.html").read_text("utf-8")
    line = "trace tiny.onnx --input in.npz --device a=cpu:1 --placement relu=a --wait -o d.json"
    assert "a: cpu:1" in call(line).stdout
    about = json.loads((folder / "d.json").read_text("utf-8"))["otherData"]
    assert about["sizes"] == {"n": 7} and about["devices"] == {"a": "cpu:1"} and about["waited"]


@pytest.mark.parametrize("line,problem", [
    ("trace tiny.onnx", "give --at n=SIZE"),
    ("trace tiny.onnx --at n=1 --input in.npz", "cannot be combined"),
    ("trace tiny.onnx --at n=1 --calls 0", "calls"),
    ("trace tiny.onnx --at m=1", "has no dim 'm'"),
    ("trace tiny.onnx --at n=1 --output missing/t.json", "folder missing does not exist"),
    ("trace tiny.onnx --at n=1 --html missing/t.html", "folder missing does not exist"),
    ("trace tiny.onnx --at n=1 --html .", "--html . is a folder"),
    ("profile tiny.onnx --at n=1 --trace missing/t.json", "folder missing does not exist"),
])  # fmt: skip
def test_traces_that_cannot_be(call, line: str, problem: str) -> None:
    assert problem in call(line, 2).stderr


def test_profile_beside_onnxruntime(call, measured: None) -> None:
    pytest.importorskip("onnxruntime")
    text = call("profile tiny.onnx --at n=7 --repeat 2 --compare onnxruntime").stdout
    assert "its operators" in text and "ratio" in text
    line = "profile tiny.onnx --at n=7 --repeat 2 --compare onnxruntime --json"
    rows = json.loads(call(line).stdout)["onnxruntime"]
    assert {node["operator"] for row in rows for node in row["nodes"]} >= {"Gather"}


@pytest.mark.parametrize("line,problem", [
    ("profile tiny.onnx", "give --at n=SIZE"),
    ("profile tiny.onnx --at n=1 --input in.npz", "cannot be combined"),
    ("profile tiny.onnx --at n=1 --repeat 0", "repeat"),
    ("profile tiny.onnx --at m=1", "has no dim 'm'"),
    ("profile tiny.onnx --at n=1 --compare other", "compare"),
    ("profile tiny.tc:f --at n=1 --compare onnxruntime", "onnxruntime cannot run tiny.tc:f"),
])  # fmt: skip
def test_profiles_that_cannot_be(call, measured: None, line: str, problem: str) -> None:
    assert problem in call(line, 2).stderr


@pytest.mark.parametrize("command", ["run", "plan", "bench"])
def test_a_model_is_not_compiled_for_a_call_without_sizes(call, command: str) -> None:
    assert "compiled" not in call(f"{command} tiny.onnx", code=2).stderr


def test_shared_options_are_one_group_of_the_help(call) -> None:
    """A command's own options stand before those that all commands have."""
    for command, own in (("plan", "--launches"), ("trace", "--html")):
        first, _, shared = call(f"{command} --help").stdout.partition(
            "Options of all commands that compile MODEL:"
        )
        assert own in first and own not in shared
        assert "--dim NAME=LOW..HIGH" in shared and "--dim NAME" not in first


def test_progress_has_phrases_for_every_stage() -> None:
    from anydim.cli.compiling import _PHASES, _phase
    from anydim.compiler.pipeline import PASSES

    assert {_phase(each.name) for each in PASSES} <= {"simplifying", "fusing nodes"}
    assert _phase("native") == _PHASES["native"] == "generating machine code"
    assert _phase("trying placement 1 of 2") == "trying placement 1 of 2"

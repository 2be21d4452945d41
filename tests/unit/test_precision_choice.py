"""`precision="auto"`: the fastest precision whose error on given inputs keeps the tolerance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.api import precision_choice
from anydim.api.precision_choice import PrecisionReport, Rung, largest_difference
from anydim.base.errors import InputError, OptionError
from anydim.cli.app import main
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((5, 96)).astype(np.float32)
TIMES = {"exact": 4.0, "fast": 4.0, "bfloat16": 2.0, "int8": 1.0}


def layer() -> onnx.ModelProto:
    w = RANDOM.standard_normal((96, 64)).astype(np.float32)
    return model(graph("layer", ["x f[rows, 96]"], [node("y = MatMul(x, w)")], ["y f[rows, 64]"],
                       {"w": w}))  # fmt: skip


LAYER = layer()


def compiled(**options: object) -> ad.Model:
    return ad.compile(LAYER, **{"precision": "auto", "inputs": {"x": X}, "threads": 1, **options})


@pytest.fixture
def known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a machine where fewer bits are faster."""
    times = [*TIMES.values(), 1.5, 2.5]  # and of mixed models
    monkeypatch.setattr(precision_choice, "_times", lambda models, calls: times[: len(models)])


def result(run: ad.Model) -> np.ndarray:
    return next(iter(run(X).values()))


@pytest.mark.usefixtures("known_times")
@pytest.mark.parametrize("tolerance, taken", [(0.5, "int8"), (2e-6, "exact")])
def test_the_fastest_tolerated_precision_is_taken(tolerance: float, taken: str) -> None:
    found = result(compiled(tolerance=tolerance))
    plain = ad.compile(LAYER, precision=taken, threads=1)
    np.testing.assert_array_equal(found, result(plain))


@pytest.mark.usefixtures("known_times")
def test_errors_are_measured_against_float64() -> None:
    w = onnx.numpy_helper.to_array(LAYER.graph.initializer[0]).astype(np.float64)
    wanted = X.astype(np.float64) @ w
    report = precision_choice.measure_rungs(
        lambda source, word: ad.compile(source, precision=word, threads=1), LAYER, {"x": X}
    )
    for rung in report.rungs:
        found = result(ad.compile(LAYER, precision=rung.precision, threads=1))
        error = abs(found - wanted).max() / abs(wanted).max()
        assert rung.error == pytest.approx(error, rel=1e-6)
    assert report.rungs[0].error < 1e-6 < 1e-3 < report.rungs[-1].error
    assert report.tolerance == 1e-3


def test_choice_and_table() -> None:
    rungs = [Rung("exact", 1e-7, 4.0), Rung("fast", 1e-7, 3.99), Rung("bfloat16", 1e-3, 2.0),
             Rung("int8", 1e-2, 1.0)]  # fmt: skip
    chosen = [PrecisionReport(tuple(rungs), t).chosen for t in (1, 1e-2, 5e-3, 1e-4, 1e-9)]
    assert chosen == ["int8", "int8", "bfloat16", "exact", None]
    text = str(PrecisionReport(tuple(rungs), 5e-3)).splitlines()
    assert text[3].split() == ["bfloat16", "1.0e-03", "2000.000", "0.50", "chosen"]
    assert text[4].endswith("0.25  above the tolerance") and text[5] == "tolerance 0.005"


def test_a_rung_wins_by_a_margin() -> None:
    """Above what load changes from run to run."""
    for seconds, taken in ((0.97, "exact"), (0.96, "exact"), (0.94, "fast")):
        rungs = Rung("exact", 1e-7, 1.0), Rung("fast", 1e-7, seconds)
        assert PrecisionReport(rungs, 1e-3).chosen == taken


def branches() -> onnx.ModelProto:
    """Two products; one cancels, so that its result shows the rounding of its factors."""
    w = RANDOM.standard_normal((96, 64)).astype(np.float32)
    cancelling = np.concatenate([w[:48], -w[:48]]) + w * np.float32(1e-3)
    nodes = [node("p = MatMul(x, w)"), node("q = MatMul(x, v)")]
    nodes[0].name, nodes[1].name = "plain", "can[cel]s"
    return model(graph("branches", ["x f[rows, 96]"], nodes, ["p f[rows, 64]", "q f[rows, 64]"],
                       {"w": w, "v": cancelling}))  # fmt: skip


@pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")
@pytest.mark.usefixtures("known_times")
def test_a_node_that_needs_more_keeps_it() -> None:
    x = np.concatenate([X[:, :48], X[:, :48]], axis=1)
    source = branches()
    report = precision_choice.measure_rungs(
        lambda source, p: ad.compile(source, precision=p, threads=1), source, {"x": x}, 2e-2
    )
    assert [r.name for r in report.rungs[4:]] == ["bfloat16, 1 exact", "int8, 1 exact"]
    *_, wide, narrow = report.rungs
    assert wide.error <= 2e-2 and narrow.error <= 2e-2 < report.rungs[2].error
    assert report.chosen == {"can[[]cel]s": "exact", "*": "bfloat16"}
    assert "nodes of bfloat16, 1 exact\n  node" in str(report)
    made = compiled_branches(source, x, report.chosen)
    auto = ad.compile(source, precision="auto", inputs={"x": x}, tolerance=2e-2, threads=1)
    for found, exact, rounded, each in zip(
        made, compiled_branches(source, x, "exact"), compiled_branches(source, x, "bfloat16"),
        auto(x).values(),
    ):  # fmt: skip
        np.testing.assert_array_equal(found, each)
        assert (found == exact).all() != (found == rounded).all()


def compiled_branches(
    source: onnx.ModelProto, x: np.ndarray, precision: object
) -> list[np.ndarray]:
    return list(ad.compile(source, precision=precision, threads=1)(x).values())


@pytest.mark.parametrize("given, problem", [
    ({"nothing": "bfloat16"}, "no node matches 'nothing'"),
    ("nothing=bfloat16, exact", "no node matches 'nothing'"),
    ({"plain": "fast"}, "precision of 'plain' is 'fast'"),
    ({"plain": 3}, "precision of 'plain' is 3"),
    ({"*": "auto"}, "precision is 'auto'"),
    ({3: "exact"}, "precision of 3"),
    ({"": "exact"}, "precision of ''"),
    ("plain=", "precision of 'plain' is ''"),
    (["exact"], "precision is"),
], ids=str)  # fmt: skip
def test_invalid_precisions_of_nodes(given: object, problem: str) -> None:
    with pytest.raises(OptionError) as raised:
        ad.compile(branches(), precision=given, threads=1)  # type: ignore[arg-type]
    assert problem in str(raised.value)


def test_the_first_pattern_decides_and_texts_are_mappings() -> None:
    source = branches()
    for given, rounded in (
        ({"plain": "int8"}, {"p"}), ({"MatMul": "int8"}, {"p", "q"}), ({}, set()),
        ({"q": "exact", "mat_mul": "int8"}, {"p"}), ("q=exact, int8", {"p"}),
        ("*=int8", {"p", "q"}),
        ({"p*": "exact", "plain": "int8"}, set()), (ad.Options(precision={"q": "int8"}), {"q"}),
    ):  # fmt: skip
        options = given if isinstance(given, ad.Options) else ad.Options(precision=given)  # type: ignore[arg-type]
        assert hash(options) == hash(options.changed())
        run, exact = (ad.compile(source, options=options.changed(threads=1, precision=p))
                      for p in (options.precision, "exact"))  # fmt: skip
        for name, found in run(X).items():
            assert (found != exact(X)[name]).any() == (name in rounded), (given, name)


def test_largest_difference() -> None:
    def of(a: object, b: object) -> float:
        return largest_difference({"y": np.asarray(a)}, {"y": np.asarray(b)})

    assert of([1.0, 4.5], [1.0, 5.0]) == 0.1 and of([0.25, 0.0], [0.0, 0.0]) == 0.25
    assert of([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0]) == 0
    assert of([np.nan], [1.0]) == np.inf and of(np.zeros(0), np.zeros(0)) == 0
    assert of([1, 2], [1, 3]) == 1 and of([True], [True]) == 0


def test_all_calls_count() -> None:
    calls = [{"x": X}, {"x": 0 * X}]
    assert isinstance(compiled(inputs=calls, tolerance=1.0), ad.Model)


@pytest.mark.parametrize("options, text", [
    ({"inputs": None}, "needs inputs"),
    ({"inputs": []}, "has no call"),
    ({"inputs": 3}, "a mapping from names to arrays"),
    ({"tolerance": "x"}, "tolerance is 'x'"),
    ({"tolerance": 0}, "give a number above 0"),
    ({"tolerance": float("nan")}, "give a number above 0"),
    ({"tolerance": 1e-12}, "no precision keeps tolerance=1e-12: the least error is"),
    ({"precision": "exact"}, 'errors are measured with precision="auto"'),
    ({"precision": None, "inputs": None, "tolerance": 1e-3}, 'with precision="auto"'),
])  # fmt: skip
def test_wrong_options(options: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as raised:
        compiled(**options)
    assert text in str(raised.value)


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="has no input 'a'"):
        compiled(inputs={"a": X})


def test_the_command(tmp_path: Path) -> None:
    onnx.save(LAYER, tmp_path / "layer.onnx")
    np.save(tmp_path / "x.npy", X)
    path, runner = str(tmp_path / "layer.onnx"), CliRunner()
    found = runner.invoke(main, ["precision", path, "--input", f"x={tmp_path / 'x.npy'}", "-q"])
    assert found.exit_code == 0, found.output
    assert [line.split()[0] for line in found.output.splitlines()[1:5]] == [*TIMES]
    strict = runner.invoke(main, ["precision", path, "--at", "rows=3", "--tolerance", "1e-12"])
    assert strict.exit_code == 1 and "no precision keeps the tolerance" in strict.output
    wrong = runner.invoke(main, ["precision", path, "--at", "rows=3", "--precision", "int8"])
    assert wrong.exit_code == 2 and "it measures all" in wrong.output

"""Promise: a check visits corners and random sizes, finds what is wrong, and says what it did."""

from __future__ import annotations

from itertools import islice

import numpy
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.base.dtypes import float32, int64
from anydim.base.errors import DimError
from anydim.compiler.checking.compare import Noise, judged
from anydim.compiler.checking.oracle import Answer
from anydim.compiler.checking.report import CheckReport, Failure
from anydim.compiler.checking.sizes import edges
from anydim.lang.surface.parser import parse_definition
from anydim.sizes import Box, Dim
from tests.interpreter.oracle import interpreter
from tests.unit.runtime.program.tiny import adder, model_of, spec

BOX = Box.of(Dim("n", 0, 40), Dim("m", 2, 9))


def reference(inputs):
    a, b = (inputs[name].astype("f8") for name in "ab")
    return {"y": a + b + b}


def model(box: Box = BOX, reference=reference, shape=("n", "m")) -> Model:
    made = adder(box, *shape)
    return model_of(made, reference)


def test_right_programs_agree() -> None:
    seen = []
    report = model().check(samples=40, progress=lambda done, total: seen.append((done, total)))
    assert report.ok and report.samples == 40 and report.worst_error < 1e-5
    assert seen == [(number, 40) for number in range(1, 41)]
    assert "40 calls at" in str(report) and "seed 0): agree" in str(report)


def test_the_same_seed_checks_the_same() -> None:
    reports = [model().check(samples=30, seed=seed) for seed in (3, 3, 4)]
    assert reports[0] == reports[1] != reports[2]


def test_ends_zero_and_one_come_first() -> None:
    points = [(s["n"], s["m"]) for s in edges(BOX)]
    assert set(points) >= {(n, m) for n in (0, 1, 40) for m in (2, 9)}
    unbounded = list(islice(edges(Box.of(Dim("k", 5))), 9))
    assert {s["k"] for s in unbounded} == {5, 69}


@pytest.mark.parametrize("units,fine", [(0.5, True), (200, False), (4000, False)])
def test_an_error_is_compared_with_that_of_numpy(units: float, fine: bool) -> None:
    """The reference is moved: the program's sums are right to a unit, and look wrong by `units`."""

    def moved(inputs):
        return {"y": reference(inputs)["y"] + units * 2.0**-23}

    made = model(reference=moved)
    made._compiled.plain = lambda inputs: {"y": moved(inputs)["y"].astype("f4")}
    report = made.check(samples=20)
    assert report.ok == fine, report
    assert fine or "numpy's in the same types is" in str(report)


def test_what_nobody_can_compute_well_is_no_difference() -> None:
    def moved(inputs):
        return {"y": reference(inputs)["y"] + 0.01}

    made = model(reference=moved)
    assert not made.check(samples=20).ok
    made._compiled.plain = lambda inputs: {"y": (reference(inputs)["y"] + 0.005).astype("f4")}
    report = made.check(samples=20)
    assert report.ok and report.plain_error == pytest.approx(0.005, rel=0.1)
    assert "(numpy's in the same types 0.005)" in str(report)


def test_cancellation_is_judged_by_what_float32_allows() -> None:
    """(x * 1e6)**2 - 1e12 * x**2 is 0, but for rounding: nobody has a digit of it in float32."""
    lib = ad.define(
        "def f(float(N) x) -> (y) {\n  big(i) = x(i) * 1000000\n"
        "  y(i) = big(i) * big(i) - 1000000000000.0 * x(i) * x(i)\n}"
    )
    report = lib.f.model(numpy.ones(3, numpy.float32)).check(samples=20)
    assert not report.failures and report.worst_error > 1, report


@pytest.mark.parametrize("wrong", [(0, 2), (1, 9), (40, 9)])
def test_an_error_at_one_corner_is_found(wrong: tuple[int, int]) -> None:
    def bad(inputs):
        result = reference(inputs)["y"]
        return {"y": result + 1 if result.shape == wrong and result.size else result}

    def strange(inputs):
        result = reference(inputs)["y"]
        return {"y": result[:, :1] if result.shape == wrong else result}

    report = model(reference=strange).check(samples=12)
    assert not report.ok and "differ" in str(report)
    assert dict(report.failures[0].sizes) == {"n": wrong[0], "m": wrong[1]}
    assert model(reference=bad).check(samples=12).ok == (wrong[0] == 0)


def test_sizes_are_brought_down_to_what_is_affordable() -> None:
    largest = []

    def watched(inputs):
        largest.append(inputs["a"].nbytes)
        return reference(inputs)

    box = Box.of(Dim("n", 0, 10**7), Dim("m", 0, 10**7))
    report = model(box, watched).check(samples=6)
    assert report.ok
    assert max(largest) < 512 * 2**20 and report.reduced


def test_what_the_reference_refuses_must_be_refused() -> None:
    def refusing(inputs):
        if len(inputs["a"]) == 40:
            raise DimError("not 40")
        return reference(inputs)

    report = model(reference=refusing).check(samples=12)
    assert not report.ok and "the model does not" in str(report.failures[0])


def test_a_program_without_dims() -> None:
    assert model(Box.of(), shape=(3, 4)).check().samples == 6


@pytest.mark.parametrize(
    ("came", "expected", "worst", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, False),
        ([numpy.nan, numpy.inf], [numpy.nan, numpy.inf], 0.0, False),
        ([1.0], [numpy.nan], numpy.inf, True),
        ([numpy.inf], [-numpy.inf], numpy.inf, True),
        ([1000.5], [1000.0], 5e-4, False),
        ([0.01], [0.0], 1e-2, True),
        ([], [], 0.0, False),
    ],
)
def test_differences(came, expected, worst: float, wrong: bool) -> None:
    found = judged(spec("y", "n"), array(came), Answer("float32", array(expected)), quiet)
    assert found.error == pytest.approx(worst, rel=1e-3) and bool(found.reason) == wrong


def array(values, dtype="f4"):
    return numpy.array(values, dtype)


def quiet() -> Noise:
    return Noise(None, None, {})


def test_integers_must_be_equal_and_types_and_shapes_too() -> None:
    assert spec("y", "n").dtype is float32
    whole = spec("y", "n", dtype=int64)
    found = judged(whole, array([1, 2], "i8"), Answer("int64", array([1, 3], "i8")), quiet)
    assert found.reason == "1 of 2 elements differ, at [1] 2, expected 3"
    found = judged(whole, array([1], "i8"), Answer("int32", array([1], "i4")), quiet)
    assert found.reason == "the element type is int64, expected int32"
    shapes = array([[1], [2]], "i8"), array([[1, 2]], "i8")
    found = judged(whole, shapes[0], Answer("int64", shapes[1]), quiet)
    assert found.reason == "the shape is [2, 1], expected [1, 2]"


def test_what_no_type_holds_is_infinite() -> None:
    found = judged(
        spec("y", "n"), array([numpy.inf]), Answer("float32", array([1e39], "f8")), quiet
    )
    assert found.error == 0.0


def test_at_most_half_of_the_calls_are_corners() -> None:
    box = Box.of(Dim("a", 0, 40), Dim("b", 0, 40), Dim("c", 0, 40))
    report = check_of(box, 20)
    assert report.corners <= 10 and report.sizes - report.corners >= 8
    assert (
        f"({report.corners} of them corners, {report.sizes - report.corners} random; seed 0)"
        in (str(report))
    )


def check_of(box: Box, samples: int):
    lib = ad.define("def f(float(A) a, float(B) b, float(C) c) -> (y) {"
                    " y(i,j) +=! a(i) * b(j) * c(k) }")  # fmt: skip
    assert box.names
    return lib.f.model(*(numpy.ones(n, numpy.float32) for n in (2, 3, 4))).check(samples)


def test_results_without_elements_are_no_agreement() -> None:
    lib = ad.define("def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:max(N - 10000, 0) }")
    report = lib.f.model(numpy.ones(3, numpy.float32)).check(samples=9)
    assert not report.ok and not report.failures
    assert "nothing was compared" in str(report).splitlines()[0]
    assert "nothing was compared at 9 of 9 calls: every result has 0 elements" in str(report)


def test_results_that_are_always_the_same_are_no_agreement() -> None:
    lib = ad.define("def f(float(N) x) -> (y) { y(i) = x(i) * 0 == 0 ? 3 : 4 }")
    report = lib.f.model(numpy.ones(3, numpy.float32)).check(samples=9)
    assert not report.ok and report.constant == ("y",)
    assert "constant in all calls, which proves little: 'y'" in str(report)


def test_a_report_fits_a_terminal() -> None:
    names = {f"a_dim_with_a_long_name_{n}": n for n in range(9)}
    failures = tuple(Failure(names, f"result_{n}", "it is wrong " * 20) for n in range(30))
    report = CheckReport(30, 2, 3.5, names, failures, types={"y": "float32"})
    assert max(map(len, str(report).splitlines())) <= 100
    assert "and 20 more" in str(report)


def test_it_ends_when_time_is_up() -> None:
    report = model().check(samples=5000, seconds=0.3)
    assert report.samples < 5000 and "stopped after 0.3 seconds" in str(report)


def test_a_result_that_is_a_parameter() -> None:
    text = "def f(float(N) w, float rate) -> (w) { w(i) *= rate }"
    model = ad.define(text).f.model(numpy.ones(3, numpy.float32), numpy.float32(2))
    oracle = interpreter(parse_definition(text), ["w.1"])
    for against in (None, oracle):
        report = model.check(samples=9, against=against)
        assert report.ok
    assert list(report.oracles) == ["the interpreter of the language"]


def test_what_no_oracle_shares_is_said() -> None:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9),))
    g.output("y", g.tanh(x))
    text = str(ad.compile(g).check(samples=6))
    assert "against anydim's evaluator in float64: it shares the graph with the compiler" in text
    assert "no other oracle: neither an ONNX file nor a definition" in text


def test_large_integers_do_not_decide_how_long_a_loop_runs() -> None:
    lib = ad.define(
        "def f(int64 n, float(N) x) -> (y) {\n  y(i) = x(i)\n  for t in 0:n { y(i) += 1 }\n}"
    )
    report = lib.f.model(numpy.int64(3), numpy.ones(3, numpy.float32)).check(samples=20)
    assert report.ok and report.samples == 20


def test_sizes_that_follow_from_others_are_found() -> None:
    """Of N and 3 * N a random pair seldom fits; the check compares at sizes that do."""
    lib = ad.define("def f(float(N) x, float(3 * N) w) -> (y) { y(i) = x(i) * w(3 * i) }")
    model = lib.f.model(numpy.ones(2, numpy.float32), numpy.ones(6, numpy.float32))
    report = model.check(samples=12)
    assert report.ok and report.samples >= 10 and report.sizes >= 6

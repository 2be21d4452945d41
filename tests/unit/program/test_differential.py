"""Promise: a check visits the ends of the box, finds what is wrong, and stays affordable."""

from __future__ import annotations

from itertools import islice

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import float32, int64
from anydim.base.errors import DimError
from anydim.model import Model
from anydim.program.differential import MOST_BYTES, difference, edges
from anydim.sizes import Box, Dim
from tests.unit.program.tiny import adder, executable, spec

BOX = Box.of(Dim("n", 0, 40), Dim("m", 2, 9))


def reference(inputs):
    a, b = (inputs[name].astype("f8") for name in "ab")
    return {"y": a + b + b}


def model(box: Box = BOX, reference=reference, shape=("n", "m")) -> Model:
    made = adder(box, *shape)
    return Model(executable(made), made, reference)


def test_right_programs_agree() -> None:
    seen = []
    report = model().check(samples=40, progress=lambda done, total: seen.append((done, total)))
    assert report.ok and report.samples == 40 and report.worst_error < 1e-5
    assert seen == [(number, 40) for number in range(1, 41)]
    assert "40 samples: agree" in str(report)


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
    made._plain = lambda inputs: {"y": moved(inputs)["y"].astype("f4")}
    report = made.check(samples=20)
    assert report.ok == fine, report
    assert fine or "numpy's in the same types is" in str(report)


def test_what_nobody_can_compute_well_is_no_difference() -> None:
    def moved(inputs):
        return {"y": reference(inputs)["y"] + 0.01}

    made = model(reference=moved)
    assert not made.check(samples=20).ok
    made._plain = lambda inputs: {"y": (reference(inputs)["y"] + 0.005).astype("f4")}
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
    assert report.ok and report.worst_error > 1, report


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
    assert model(box, watched).check(samples=6).ok
    assert max(largest) < MOST_BYTES


def test_what_the_reference_refuses_must_be_refused() -> None:
    def refusing(inputs):
        if len(inputs["a"]) == 40:
            raise DimError("not 40")
        return reference(inputs)

    report = model(reference=refusing).check(samples=12)
    assert not report.ok and "the program does not" in str(report.failures[0])


def test_a_program_without_dims() -> None:
    assert model(Box.of(), shape=(3, 4)).check().samples == 3


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
    error, reason = difference(spec("y", "n"), *(numpy.array(x, "f4") for x in (came, expected)))
    assert error == pytest.approx(worst, rel=1e-3) and bool(reason) == wrong


def test_integers_must_be_equal_and_shapes_too() -> None:
    assert spec("y", "n").dtype is float32
    whole = spec("y", "n", dtype=int64)
    assert difference(whole, numpy.array([1, 2]), numpy.array([1, 3]))[1] == "1 elements differ"
    assert difference(whole, numpy.zeros((2, 1)), numpy.zeros((1, 2)))[0] == numpy.inf

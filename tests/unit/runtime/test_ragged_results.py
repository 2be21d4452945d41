"""Promise: `out=` of a ragged model fills the caller's arrays with the bits of new ones."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import InputError
from tests.unit.compiler.passes.ragged.test_rows import (
    IMAGES,
    PROGRAMS,
    WIDTH,
    pointwise,
    rows_of,
    weights,
)

LENGTHS = ([], [0], [3, 1, 5], [0, 2, 0, 33, 0])


def buffers(result: Any, kind: str) -> Any:
    """Arrays for a result: of garbage, so that what is not written is seen."""
    if not isinstance(result, ad.Ragged):
        return numpy.full_like(result, 7)
    values = numpy.full_like(result.values, 7)
    if kind == "ragged":
        return ad.Ragged(values, result.offsets, result.shapes)
    if kind == "back to back":
        return list(ad.Ragged(values, result.offsets, result.shapes))
    return [numpy.full_like(row, 7) for row in result]


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_written_into_given_arrays(name: str) -> None:
    graph = PROGRAMS[name]()
    alone, model = ad.compile(graph), ad.compile(graph, ragged="auto")
    for lengths in LENGTHS:
        given = rows_of(alone, lengths, 1 if name in ("ends", *IMAGES) else 0)
        if not lengths and set(given) - set(model.lists):
            continue  # an array of no rows needs its shape
        feeds = {n: e if n in model.lists else numpy.stack(e) for n, e in given.items()}
        expected = model(**feeds)
        for kind in ("ragged", "back to back", "apart"):
            out = {key: buffers(result, kind) for key, result in expected.items()}
            found = model(**feeds, out=out)
            assert list(found) == list(expected)
            for key, result in expected.items():
                assert found[key] is out[key]
                for one, other in zip(out[key], result, strict=True):
                    numpy.testing.assert_array_equal(one, other)


def test_single_results_take_their_rows_and_others_are_new() -> None:
    rows = [weights(3, WIDTH), weights(5, WIDTH)]
    model = ad.compile(pointwise(), ragged="auto")
    expected = model(x=rows)["y"]
    for out in ([row * 0 for row in rows], tuple(row * 0 for row in rows)):
        assert model(x=rows, out=out)["y"] is out
        numpy.testing.assert_array_equal(numpy.concatenate(out), expected.values)
    held = ad.Ragged.of([row * 0 for row in rows])
    assert model(rows, out=held)["y"] is held
    assert model(x=rows, out=[held])["y"] is held
    encoder = ad.compile(PROGRAMS["encoder"](), ragged="auto")
    made = encoder(x=rows)
    mean = made["mean"] * 0
    found = encoder(x=rows, out=(None, mean))
    assert found["mean"] is mean and (mean == made["mean"]).all()
    numpy.testing.assert_array_equal(found["tokens"].values, made["tokens"].values)


def test_results_may_be_written_over_inputs() -> None:
    model = ad.compile(pointwise(), ragged="auto")
    rows = [weights(3, WIDTH), weights(5, WIDTH)]
    expected = model(x=rows)["y"].values
    held = ad.Ragged.of(rows)
    model(x=held, out=held)
    numpy.testing.assert_array_equal(held.values, expected)
    crossed = [rows[1][:3], numpy.concatenate([rows[0], rows[1][3:]])]  # over another row's input
    again = model(x=crossed)["y"]
    model(x=crossed, out=[crossed[0], crossed[1]])
    for one, other in zip(crossed, again):
        numpy.testing.assert_array_equal(one, other)


def frozen(array: numpy.ndarray) -> numpy.ndarray:
    array.flags.writeable = False
    return array


X = numpy.zeros((8, WIDTH), numpy.float32)


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        (lambda: X.copy(), "is ndarray, and the result is ragged"),
        (lambda: {"z": X}, "no result 'z'"),
        (lambda: [X[:3].copy()], "has 1 row, the result has 2"),
        (
            lambda: [X[:3].copy(), X[:4].copy()],
            r"row 1: its shape is \[4, 8\], the result's \[5, 8",
        ),
        (lambda: [X[:3].astype("f8"), X[:5].copy()], "has dtype float64"),
        (lambda: [frozen(X[:3].copy()), X[:5].copy()], "is read-only"),
        (lambda: ad.Ragged(frozen(X.copy()), [0, 3, 8]), "is read-only"),
        (lambda: [X[:6:2], X[:5].copy()], "is not contiguous"),
        (lambda: ad.Ragged(X.copy(), [0, 4, 8]), r"row 0: its shape is \[4, 8\]"),
        (lambda: (lambda a: [a[:3], a[:5]])(X.copy()), "rows of the array for 'y' share memory"),
        (lambda: [[1.0], [2.0]], "2 arrays"),
    ],
)
def test_arrays_that_do_not_fit(out: Any, problem: str) -> None:
    model = ad.compile(pointwise(), ragged="auto")
    with pytest.raises(InputError, match=problem):
        model(x=[weights(3, WIDTH), weights(5, WIDTH)], out=out())


def test_arrays_of_two_results_are_apart() -> None:
    model = ad.compile(PROGRAMS["encoder"](), ragged="auto")
    rows = [weights(3, WIDTH), weights(5, WIDTH)]
    whole = numpy.zeros((8 + 2, WIDTH), numpy.float32)
    with pytest.raises(InputError, match="'tokens' and 'mean' share memory"):
        model(x=rows, out={"tokens": [whole[:3], whole[3:8]], "mean": whole[7:9]})
    with pytest.raises(InputError, match="shape"):
        model(x=rows, out={"mean": whole[:3]})
    model(x=rows, out={"tokens": [whole[:3], whole[3:8]], "mean": whole[8:]})
    expected = model(x=rows)
    numpy.testing.assert_array_equal(whole[:8], expected["tokens"].values)
    numpy.testing.assert_array_equal(whole[8:], expected["mean"])

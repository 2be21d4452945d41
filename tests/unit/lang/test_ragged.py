"""Promise: sizes of rows in definitions, `float(B, T(b), D) x`, are read, printed and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DimError, InputError, LanguageError, OptionError
from anydim.lang.surface.parser import parse, parse_definition
from anydim.lang.surface.printer import print_definition

ATTENTION = """def attention(float(B, Q(b), D) q, float(B, K(b), D) k, float(B, K(b), E) v) -> (y) {
  s(b,i,j) +=! q(b,i,d) * k(b,j,d)
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = exp(s(b,i,j) - m(b,i))
  z(b,i) +=! p(b,i,j)
  a(b,i,e) +=! p(b,i,j) * v(b,j,e)
  y(b,i,e) = a(b,i,e) / z(b,i)
}
"""
DEFINITIONS = """
def before(float(B, T(b), D) x) -> (y) { y(b,t,d) = x(b,t,d) - (x(b, t - 1, d) else 0) }
def means(float(B, T(b), D) x, float(D, E) w) -> (y) {
  h(b,t,e) +=! x(b,t,d) * w(d,e)
  s(b,e) +=! h(b,t,e)
  y(b,e) = s(b,e) / cast<float>(max(T, 1))
}
def centred(float(B, H(b), W(b)) x) -> (y) {
  s(b) +=! x(b,i,j)
  y(b,i,j) = x(b,i,j) - s(b) / cast<float>(max(H * W, 1))
}
"""
ROWS = ((3, 5), (1, 2), (0, 4), (6, 0), (5, 3))


def drawn(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(shape).standard_normal(shape).astype(numpy.float32)


def test_ragged_sizes_are_parsed_and_printed() -> None:
    definition = parse_definition(ATTENTION)
    assert definition.ragged == {"Q": "B", "K": "B"}
    assert parse_definition(print_definition(definition)) == definition
    assert "float(B, K(b), E) v" in print_definition(definition)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("float(B, T(c)) x", "'c' of 'T\\(c\\)' is no index of an axis before"),
        ("float(T(b), B) x", "is no index of an axis before"),
        ("float(B, T(b)) x, float(C, U(c)) z", "all ragged sizes .* belong to one size of rows"),
        ("float(B, T(b + 1)) x", "'T' cannot be part of a shape"),
        ("float(B, T(b, b)) x", "'T' cannot be part of a shape"),
    ],
)
def test_rows_that_are_no_index_are_refused(head: str, problem: str) -> None:
    with pytest.raises(LanguageError, match=problem):
        parse(f"def f({head}) -> (y) {{ y(b,t) = x(b,t) }}")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ragged") / "kernels.tc"
    path.write_text(ATTENTION + DEFINITIONS, "utf-8")
    return path


def test_attention_of_rows(file: Path) -> None:
    model = ad.compile(f"{file}:attention")
    q, k, v = ([drawn(sizes[axis], width) for sizes in ROWS] for axis, width in
               ((0, 8), (1, 8), (1, 6)))  # fmt: skip
    for a, b, c, found in zip(q, k, v, model(q=q, k=k, v=v)["y"]):
        if not len(b):
            continue  # no key: 0 / 0
        scores = a.astype(numpy.float64) @ b.T
        weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        expected = weights @ c / weights.sum(axis=1, keepdims=True)
        numpy.testing.assert_allclose(found, expected, 1e-5, 1e-5)  # float32 sums of 8 terms


def test_a_row_starts_at_its_own_border(file: Path) -> None:
    rows = [drawn(length, 4) for length, _ in ROWS]
    for row, found in zip(rows, ad.compile(f"{file}:before")(x=rows)["y"]):
        shifted = numpy.concatenate([numpy.zeros_like(row[:1]), row[:-1]])[: len(row)]
        numpy.testing.assert_array_equal(found, row - shifted)


def test_sums_are_per_row(file: Path) -> None:
    rows, w = [drawn(length, 4) for length, _ in ROWS], drawn(4, 3)
    found = ad.compile(f"{file}:means")(x=rows, w=w)["y"]
    expected = [(row.astype(numpy.float64) @ w).sum(axis=0) / max(len(row), 1) for row in rows]
    numpy.testing.assert_allclose(found, expected, 1e-5, 1e-6)  # float32 sums of 20 terms


def test_rows_with_two_sizes(file: Path) -> None:
    rows = [drawn(*sizes) for sizes in ROWS]
    for row, found in zip(rows, ad.compile(f"{file}:centred")(x=rows)["y"]):
        expected = row - row.astype(numpy.float64).sum() / max(row.size, 1)
        numpy.testing.assert_allclose(found, expected, 1e-5, 1e-6)  # float32 sums of 15 terms


# ---- called from Python ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def lib() -> Any:
    return ad.define(ATTENTION + DEFINITIONS)


def test_functions_take_rows_as_the_compiled_file_does(lib: Any, file: Path) -> None:
    rows, w = [drawn(length, 4) for length, _ in ROWS], drawn(4, 3)
    expected = ad.compile(f"{file}:before")(x=rows)["y"].values
    for given in (rows, tuple(rows), ad.Ragged.of(rows), [row.tolist() or row for row in rows]):
        found = lib.before(given)
        assert isinstance(found, ad.Ragged) and found.lengths.tolist() == [r[0] for r in ROWS]
        numpy.testing.assert_array_equal(found.values, expected)
    means = ad.compile(f"{file}:means")(x=rows, w=w)["y"]
    numpy.testing.assert_array_equal(lib.means(rows, w), means)
    numpy.testing.assert_array_equal(lib.means(w=w, x=ad.Ragged.of(rows)), means)
    two = [drawn(*sizes) for sizes in ROWS]
    for one, other in zip(lib.centred(two), ad.compile(f"{file}:centred")(x=two)["y"]):
        numpy.testing.assert_array_equal(one, other)


def test_arrays_and_equal_lists_of_numbers_are_arrays(lib: Any) -> None:
    x = [[[1.0, 2], [3, 4]], [[5, 6], [7, 9]]]
    eye = numpy.eye(2, dtype=numpy.float32)
    assert lib.means(x, eye).tolist() == [[2, 3], [6, 7.5]]
    assert isinstance(lib.before(numpy.float32(x)), numpy.ndarray)
    found = lib.before([numpy.float32(row) for row in x])  # a list of arrays is rows
    numpy.testing.assert_array_equal(numpy.stack(list(found)), lib.before(x))
    assert lib.means([[[1.0, 2], [3, 4]], [[5, 6]]], eye).tolist() == [[2, 3], [5, 6]]


def test_a_function_writes_rows_into_given_arrays(lib: Any) -> None:
    rows = [drawn(length, 4) for length, _ in ROWS]
    out = [numpy.full_like(row, 7) for row in rows]
    assert lib.before(rows, out=out) is out
    numpy.testing.assert_array_equal(numpy.concatenate(out), lib.before(rows).values)
    model = lib.before.model(rows)
    assert model.plan(lengths=[3, 1], D=4).sizes["T.total"] == 4
    assert "rows: float32[?, ?, ?]" in lib.before._kinds()
    assert len(lib.before([])) == 0


R = [drawn(3, 4), drawn(5, 4)]


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (lambda lib: lib.before([drawn(3)]), InputError, "a row has 1 axis, expected 2"),
        (lambda lib: lib.before([R[0], drawn(5, 3)]), InputError, "differ in more than axis 0"),
        (lambda lib: lib.before([R[0], R[1].astype("f8")]), InputError, "row 1 is float64"),
        (lambda lib: lib.before([r.astype("f8") for r in R]), LanguageError, "'x' is float32"),
        (lambda lib: lib.before([None]), InputError, "None is no number"),
        (lambda lib: lib.before(R, fixed={"T": 5}), OptionError, "'T' is fixed, and rows decide"),
        (lambda lib: lib.before(R, fixed={"B": 2}), OptionError, "'B' is fixed, and rows decide"),
        (lambda lib: lib.attention(R, R[:1], R), InputError, "'v' has 2 rows, input 'k' has 1"),
        (lambda lib: lib.attention(R, R, R[::-1]), InputError, "'K' is 5 in input 'v', 3 in"),
        (lambda lib: lib.means(R, drawn(5, 2)), DimError, "D"),
        (lambda lib: lib.before(R, out=R[:1]), InputError, "has 1 row, the result has 2"),
        (lambda lib: lib.before.sizes(R), InputError, "is no shape"),
    ],
)
def test_rows_that_do_not_fit_a_function(lib: Any, call: Any, error: Any, problem: str) -> None:
    with pytest.raises(error, match=problem):
        call(lib)

"""Flattening keeps the computation and loses loops; passes are planned as the docstrings say."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import float32, int64
from anydim.compiler.kernels.flatten import flatten, reads_same_elements
from anydim.compiler.kernels.rows.fusion_plan import plan_passes
from anydim.compiler.kernels.rows.row_form import row_form
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import as_size
from tests.unit.compiler.kernels.row_cases import BOX, BY_NAME


def group(text: str, *shapes: str) -> Group:
    types = [TensorType(float32, tuple(as_size(s) for s in shape.split())) for shape in shapes]
    return instantiate(parse_definition(text), types, box=BOX)


def loops(name: str) -> list[list[str]]:
    return [
        [str(axis.extent) for axis in (*s.axes, *s.reduced)]
        for s in flatten(BY_NAME[name].group()).statements
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gelu", [["B*C*S"]]),
        ("broadcast", [["B*S", "C"]]),
        ("permuted", [["B", "R", "S", "C"]]),
        ("sum of all", [["C*R"]]),
        ("log softmax", [["B*S", "C"], ["B*S", "C"], ["B*S", "C"]]),
        ("norm over two axes", [["R", "C*S"], ["R", "C*S"]]),
        ("lower triangle", [["R", "C"]]),
    ],
)
def test_neighbours_merge(name: str, expected: list[list[str]]) -> None:
    assert loops(name) == expected


def test_unit_axes_go() -> None:
    made = flatten(group("def f(float(1,C,1) x) -> (y) { y(a,c,b) = x(a,c,b) + a }", "1 C 1"))
    assert [axis.name for axis in made.statements[0].axes] == ["c"]


def test_an_index_that_is_computed_with_keeps_its_loop() -> None:
    made = flatten(group("def f(float(R,C) x) -> (y) { y(r,c) = x(r,c) + r }", "R C"))
    assert len(made.statements[0].axes) == 2


def test_axes_merge_in_reads_at_places_that_are_read() -> None:
    """As sampling does: x at (r(i,j), c(i,j)), zeros outside of it."""
    text = """def f(float(N,H,W) x, int64(N,R,C) r, int64(N,R,C) c) -> (y) {
      y(n,i,j) = x(n,r(n,i,j),c(n,i,j)) else 0
    }"""
    types = [
        TensorType(dtype, tuple(as_size(s) for s in shape.split()))
        for dtype, shape in ((float32, "B H W"), (int64, "B R C"), (int64, "B R C"))
    ]
    made = flatten(instantiate(parse_definition(text), types, box=BOX))
    assert [str(axis.extent) for axis in made.statements[0].axes] == ["B", "C*R"]


def test_values_read_elsewhere_do_not_fit_one_row() -> None:
    text = """def f(float(R,C) x) -> (y) {
      e(r,c) = x(r,c) * 2
      y(r,c) = e(r,c) + e(r,0)
    }"""
    made = group(text, "R C")
    assert not reads_same_elements(flatten(made))
    assert row_form(made, across=False) is None


def test_contractions_are_not_swallowed() -> None:
    text = """def f(float(R,V) a, float(V,C) b, float(C) bias) -> (y) {
      p(r,c) +=! a(r,v) * b(v,c)
      y(r,c) = p(r,c) + bias(c)
    }"""
    made = group(text, "R V", "V C", "C")
    assert row_form(made, across=False) is None and row_form(made, across=True) is None


def test_softmax_keeps_its_exponentials_in_the_result() -> None:
    form = row_form(BY_NAME["softmax"].group(), across=False)
    assert form is not None and form.plan.passes == 3
    assert {n: (k.first, k.output) for n, k in form.plan.kept.items()} == {"e": (1, "y")}
    assert form.plan.slots == ()


def test_cheap_elements_are_computed_again() -> None:
    form = row_form(BY_NAME["layer norm"].group(), across=False)
    assert form is not None and form.plan.passes == 3 and not form.plan.kept


def test_what_has_no_place_goes_to_scratch() -> None:
    form = row_form(BY_NAME["kept in scratch"].group(), across=False)
    assert form is not None and form.plan.slots


def test_means_divide_once() -> None:
    form = row_form(BY_NAME["layer norm"].group(), across=False)
    assert form is not None and form.scaled == {"mean", "variance"}


def test_no_plan_for_a_scalar_that_reads_elements() -> None:
    made = flatten(group("def f(float(R,C) x) -> (e, y) { e(r,c) = x(r,c)\n y(r) = e(r,0) }",
                         "R C"))  # fmt: skip
    assert plan_passes(made, frozenset(("c",))) is None


def test_remainders_are_rounds() -> None:
    """A tile is its rounds and its elements; what repeats in fewer than a vector stays."""
    text = (
        "def f(float(R,C) x) -> (y) { y(i,j) = x(i % R, j % C) where i in 0:2 * R, j in 0:3 * C }"
    )
    (statement,) = flatten(group(text, "R C")).statements
    assert [str(axis.extent) for axis in statement.axes] == ["2", "R", "3", "C"]
    (statement,) = flatten(group(text, "R 4")).statements
    assert [str(axis.extent) for axis in statement.axes] == ["2", "R", "12"]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (2, 1), (1, 40), (17, 3), (5, 100)])
def test_rounds_have_the_same_values(shape: tuple[int, int]) -> None:
    """Also where the place itself is used, and in sums over one of the axes."""
    rows, columns = shape
    x = np.arange(rows * columns, dtype=np.float32).reshape(shape)
    tiled = np.tile(x, (2, 3))
    places = np.arange(3 * columns)
    size = "where i in 0:2 * R, j in 0:3 * C"
    ends = f"{size} }}"
    for body, right in (
        (f"y(i,j) = x(i % R, j % C) + j {ends}", tiled + places),
        (f"y(i,j) = x(i % R, j % C) * float(j // C) {ends}", tiled * (places // max(1, columns))),
        (f"y(i) +=! x(i % R, j % C) {ends}", tiled.sum(1)),
    ):
        found = ad.define(f"def f(float(R,C) x) -> (y) {{ {body}").f(x)
        np.testing.assert_array_equal(found, right, err_msg=body)

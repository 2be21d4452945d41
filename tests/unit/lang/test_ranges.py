"""Inferred ranges are the largest that read in bounds; other reads are proven or guarded."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.base.dtypes import float32
from anydim.base.errors import DimError, InputError, LanguageError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import check, random, run


def group_for(body, box, *sizes, combine="+=!"):
    names = [f"x{position}" for position in range(len(sizes))]
    parameters = ", ".join(f"float(N{name}) {name}" for name in names)
    text = f"def f({parameters}) -> (y) {{ y(i) {combine} {body} }}"
    types = [TensorType(float32, (as_size(size),)) for size in sizes]
    return instantiate(parse_definition(text), types, {}, box)


@pytest.mark.parametrize("body, sizes, extent", [
    ("x0(i)", ("n",), "n"),
    ("x0(i) * x1(i)", ("n", "m"), "min(n, m)"),
    ("x0(i) * x1(i)", ("n", 10), "n"),
    ("x0(i + k) * x1(k)", ("n", 3), "max(n - 2, 0)"),
    ("x0(i + k) * x1(k)", ("n + 2", 3), "n"),
    ("x0(2 * i)", ("n",), "(n + 1)//2"),
    ("x0(2 * i + k) * x1(k)", ("n", 2), "n//2"),
    ("x0(i // 3)", ("n",), "3*n"),
    ("x0((i + k) // 2) * x1(k)", ("n", 3), "max(2*n - 2, 0)"),
    ("x0(9 - i)", (10,), "10"),
    ("x0(n0 - 1 - i)".replace("n0", "Nx0"), ("n",), "n"),
    ("x0(i) * x0(i + 1)", ("n",), "max(n - 1, 0)"),
    ("x0(4 * i + j) * x1(j)", ("4*n", 4), "n"),
])  # fmt: skip
def test_inferred_ranges(body, sizes, extent):
    box = Box.of(Dim("n", 0, 9), Dim("m", 0, 20))
    group = group_for(body, box, *sizes)
    assert group.statements[0].axes[0].extent == as_size(extent)
    assert group.guards == ()


@pytest.mark.parametrize("body", ["x0(i + 1)", "x0(i - 1)", "x0(i * i)", "x0(9 - i)", "1"])
def test_ranges_that_do_not_follow(body):
    with pytest.raises(LanguageError, match="range"):
        group_for(body, Box.of(Dim("n", 0, 9)), "n")


@given(
    a=st.integers(1, 3), b=st.integers(1, 2), c=st.integers(-2, 0),
    extra=st.integers(0, 3), size=st.sampled_from(["n", "2*n + 1", "n + m", "m"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None, derandomize=True)
def test_reads_are_in_bounds_or_guarded(a, b, c, extra, size):
    """y(i) over x0(a*i + b*k + c), with k from another read and i inferred from a third."""
    box = Box.of(Dim("n", 0, 9), Dim("m", 0, 9))
    body = f"x0({a} * i + {b} * k + {c}) * x1(k) * x2(i + {extra}) * x2(i)"
    try:
        group = group_for(body, box, size, "m", "n")
    except LanguageError as error:
        assert "is read at" in str(error)
        return
    for n, m in itertools.product(range(5), range(5)):
        sizes = {"n": n, "m": m}
        lengths = [t.type.shape[0].evaluate(sizes) for t in group.inputs]
        arrays = {t.name: np.ones(k, "float32") for t, k in zip(group.inputs, lengths)}
        positions = [a * i + b * k + c for i in range(max(0, n - extra)) for k in range(m)]
        inside = all(0 <= p < lengths[0] for p in positions)
        if inside:
            result = evaluate(group, arrays, sizes)["y"]
            np.testing.assert_allclose(result, np.full(max(0, n - extra), m))
        else:
            with pytest.raises(DimError, match="'x0' is read at"):
                evaluate(group, arrays, sizes)


def test_a_guard_speaks_of_its_line():
    group = group_for("x0(i + 2) * x1(i)", Box.of(Dim("n", 0, 9), Dim("m", 0, 9)), "n", "m")
    assert group.guards == ()  # i starts where both reads allow it
    group = group_for(
        "x0(i + 2) where i in 0:Nx1", Box.of(Dim("n", 0, 9), Dim("m", 0, 9)), "n", "m", combine="="
    )
    (guard,) = group.guards
    assert guard.message == (
        "f, line 1: 'x0' is read at 2 to m + 1 of dimension 0, inside its size n"
    )
    with pytest.raises(DimError):
        evaluate(group, {"x0": np.ones(3, "f"), "x1": np.ones(2, "f")}, {"n": 3, "m": 2})
    evaluate(group, {"x0": np.ones(0, "f"), "x1": np.ones(0, "f")}, {"n": 0, "m": 0})


def test_a_position_that_no_proof_reaches_is_checked_when_read():
    group = group_for(
        "x0(i - i // 2 * 2) where i in 0:Nx1", Box.of(Dim("n", 0, 9)), 2, "n", combine="="
    )
    assert group.guards == ()
    arrays = {"x0": np.array([5, 6], "f"), "x1": np.ones(3, "f")}
    assert list(evaluate(group, arrays, {"n": 3})["y"]) == [5, 6, 5]
    group = group_for(
        "x0(i - i // 2) where i in 0:Nx1", Box.of(Dim("n", 0, 9)), 2, "n", combine="="
    )
    with pytest.raises(InputError, match=r"index 2 is outside 0\.\.1 of 'x0'"):
        evaluate(group, {**arrays, "x1": np.ones(5, "f")}, {"n": 5})


@pytest.mark.parametrize("low, high, count", [(0, 3, 3), (2, 5, 3), (4, 2, 0), (3, 3, 0)])
def test_where_gives_a_range(low, high, count):
    group = group_for(f"x0(i) where i in {low}:{high}", Box.of(), 5, combine="=")
    result = evaluate(group, {"x0": np.arange(5, dtype="f")}, {})["y"]
    assert list(result) == list(range(low, high))
    assert len(result) == count


RAGGED = """def f(float(M,N) x, int64(M) n) -> (y) {
  y(m) +=! x(m,k) where k in 0:n(m)
}"""


def test_data_may_end_a_range():
    x = random(3, 4)
    lengths = np.array([0, 4, 2])
    expected = np.array([row[:n].sum() for row, n in zip(x, lengths)], "float32")
    check(RAGGED, expected, x, lengths)


@pytest.mark.parametrize("wrong", [5, -1])
def test_an_end_beyond_what_is_read_is_an_error_of_the_call(wrong):
    with pytest.raises(InputError, match=rf"index {wrong} is outside 0\.\.4"):
        run(RAGGED, random(3, 4), np.array([0, wrong, 2]))


def test_ends_see_the_values_of_other_indices():
    x = np.arange(5, dtype="f")
    text = "def f(float(N) x) -> (y) { y(i) +=! x(j) where i in 2:5, j in 0:i }"
    check(text, np.array([1, 3, 6], "f"), x)

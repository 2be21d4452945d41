"""Rows and pointwise: right at every size, vector width, type and split of the parallel range."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, boolean, float32, float64, int32, int64, uint8
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.kernels.rows.few_columns import fits_few_columns
from anydim.compiler.kernels.rows.row_form import row_form
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.runtime.positions import FINE
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target
from tests.unit.compiler.kernels.row_cases import BOX, BY_NAME, CASES, Case

TEMPLATES = (rows.TEMPLATE, pointwise.TEMPLATE)
FLOATING = ("softmax", "softmax across", "column means", "masked mean", "layer norm")
NUMERIC = ("sum of all", "broadcast", "permuted", "transposed", "padded", "rows of two loops",
           "repeated", "lower triangle", "matrix product")  # fmt: skip
OUTER = ((2, 3), (0, 3), (1, 0), (1, 1))


@once_for_each_target
def prepared(name: str, vector_bytes: int, dtype: DType = float32) -> Prepared:
    machine = Machine(vector_bytes, 16)
    return Prepared(BY_NAME[name].group(dtype), TEMPLATES, BOX, machine)


def columns(vector_bytes: int) -> tuple[int, ...]:
    lanes = vector_bytes // 4
    return (0, 1, lanes - 1, lanes, lanes + 1, 4 * lanes, 131)


def check(
    case: Case, made: Prepared, env: dict[str, int], dtype: DType, parts: int, compiled: bool
) -> None:
    if case.name == "sum over windows" and env["C"] < 2:
        return
    arrays = case.arrays(dtype, env)
    found = made.outputs(arrays, env, parts, compiled)
    exact = dtype == float64 or dtype.is_integer
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if exact else {"rtol": 3e-5, "atol": 3e-6}
    for result, expected in zip(found, case.expected(arrays), strict=True):
        assert result.shape == np.shape(expected)
        np.testing.assert_allclose(result, expected, **tolerance)


@pytest.mark.sampled(most=24)
@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_access_is_inside_and_values_are_right(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes)
    assert made.template.name == case.template
    for size in columns(vector_bytes)[:5]:
        for outer, middle in OUTER[: 3 if size < 8 else 1]:
            env = {"R": outer, "S": middle, "C": size, "B": 2, "V": 5}
            check(case, made, env, float32, parts=2, compiled=False)


@pytest.mark.sampled(most=13)
@pytest.mark.parametrize("vector_bytes", (16, 32, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiled(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes)
    for size in (*columns(vector_bytes), 1000):
        for outer, middle in OUTER:
            env = {"R": outer, "S": middle, "C": size, "B": 2, "V": 5}
            for parts in (1, 3):
                check(case, made, env, float32, parts, compiled=True)


@pytest.mark.sampled(most=13)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, float64) for name in (*FLOATING, *NUMERIC)]
    + [(name, dtype) for name in NUMERIC for dtype in (int64, int32)],
)
def test_other_types(name: str, dtype: DType) -> None:
    made = prepared(name, 32, dtype)
    for size in (0, 1, 3, 4, 5, 33):
        env = {"R": 3, "S": 2, "C": size, "B": 2, "V": 5}
        check(BY_NAME[name], made, env, dtype, parts=2, compiled=True)


@pytest.mark.parametrize("name", ("broadcast", "padded", "lower triangle"))
def test_rows_of_a_few_bytes_are_a_vector_each(name: str) -> None:
    made = prepared(name, 64, uint8)
    assert "if p0 <= 16" in print_kernel(made.launch.kernel)
    for size in (1, 2, 15, 16, 17, 63, 64, 65):
        for parts in (1, 3):
            env = {"R": 3, "S": 2, "C": size, "B": 2, "V": 5}
            check(BY_NAME[name], made, env, uint8, parts, compiled=True)
            check(BY_NAME[name], made, env, uint8, parts, compiled=False)


@pytest.mark.parametrize("dtype", (int64, int32, boolean), ids=str)
def test_extremes_over_nothing_are_the_ends_of_the_type(dtype: DType) -> None:
    case = Case(
        "extremes",
        "def ends(T(R,C) x) -> (y, z) { y(r) max=! x(r,c)\n z(r) min=! x(r,c) }",
        ("R C",),
        lambda x: (x, x),
    )
    made = Prepared(case.group(dtype), TEMPLATES, BOX, Machine(32, 16))
    low, high = made.outputs([np.zeros((2, 0), dtype.numpy)], {"R": 2, "C": 0}, compiled=True)
    info = (False, True) if dtype == boolean else (np.iinfo(dtype.numpy).min, np.iinfo(
        dtype.numpy).max)  # fmt: skip
    assert (low == info[0]).all() and (high == info[1]).all()


def test_nothing_reduced_is_the_identity() -> None:
    made = prepared("column means", 32)
    (result,) = made.outputs([np.zeros((0, 5), np.float32)], {"R": 0, "C": 5}, compiled=True)
    assert (result == 0).all()


def test_nan_and_infinity_pass_through() -> None:
    made = prepared("softmax", 64)
    x = np.zeros((3, 40), np.float32)
    x[0, 37], x[1, 2], x[2, 5] = np.nan, np.inf, -np.inf
    (y,) = made.outputs([x], {"R": 3, "C": 40}, compiled=True)
    assert np.isnan(y[0]).all() and np.isnan(y[1, 2])
    assert y[2, 5] == 0 and np.allclose(np.delete(y[2], 5), 1 / 39)


def test_indirect_reads_outside_yield_zero() -> None:
    made = prepared("looked up", 32)
    table = np.ones((5, 9), np.float32)
    at = np.array([[0, 4, 5], [-5, -6, 2**40]], np.int64)
    env = {"V": 5, "C": 9, "B": 2, "S": 3}
    (y,) = made.outputs([table, at], env, compiled=True)
    assert (y[..., 0] == [[1, 1, 0], [1, 0, 0]]).all()


@pytest.mark.parametrize("compiled", (False, True))
def test_a_few_elements_of_a_row_are_looked_up_in_few_lanes(compiled: bool) -> None:
    (definition,) = parse(
        "def f(T(R,C) x, int64(R,K) at) -> (y) { y(r,k) = x(r,at(r,k)) }"
    ).values()
    box = Box.of(*map(Dim, "RCK"))
    shapes = ((float32, "RC"), (int64, "RK"))
    kinds = tuple(TensorType(dtype, tuple(map(as_size, names))) for dtype, names in shapes)
    made = Prepared(instantiate(definition, kinds, {}, box), TEMPLATES, box, Machine(64, 16))
    assert "if p0 <= 4" in print_kernel(made.launch.kernel)
    for count in (0, 1, 3, 4, 5, 16, 17):
        at = np.random.default_rng(count).integers(0, 9, (7, count))
        x, env = np.arange(63, dtype=np.float32).reshape(7, 9), {"R": 7, "C": 9, "K": count}
        (y,) = made.outputs([x, at], env, 2, compiled)
        np.testing.assert_array_equal(y, np.take_along_axis(x, at, 1))
        assert (made.status == FINE).all()
        if count:
            made.outputs([x, np.where(at == at[6, -1], 9, at)], env, 2, compiled)
            assert (made.status == 9).any()


def test_long_sums_stay_accurate() -> None:
    made = prepared("layer norm", 64)
    random = np.random.default_rng(3)
    x = (random.standard_normal((2, 4999)) + 1000).astype(np.float32)
    g, b = np.ones(4999, np.float32), np.zeros(4999, np.float32)
    (y,) = made.outputs([x, g, b], {"R": 2, "C": 4999}, compiled=True)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(y, expected, atol=2e-4)


@pytest.mark.parametrize("columns", (0, 1, 96, 97, 200))
def test_long_independent_rows_are_shared_in_pieces(columns: int) -> None:
    case = BY_NAME["broadcast over the first axis"]
    made = prepared(case.name, 64)
    env = {"B": 2, "S": 171, "C": columns}
    assert made.launch.parallel.evaluate(env) == 2 * -(-171 * columns // 8192)
    check(case, made, env, float32, parts=3, compiled=True)


def test_equal_computations_are_one_kernel() -> None:
    renamed = Case(
        "softmax",
        BY_NAME["softmax"].text.replace("top", "most").replace("(r,c)", "(i,j)").replace(
            "(r)", "(i)"),
        ("S V",),
        lambda x: x,
    )  # fmt: skip
    other = Prepared(renamed.group(), TEMPLATES, BOX, Machine(64, 16))
    assert other.launch.kernel == prepared("softmax", 64).launch.kernel
    assert other.launch.sizes != prepared("softmax", 64).launch.sizes


def test_reports() -> None:
    launch = prepared("softmax", 64).launch
    env = {"R": 7, "C": 384}
    assert launch.schedule == "rows(lanes=16, unroll=4, across=false)"
    assert launch.moved.evaluate(env) == 2 * 4 * 7 * 384
    assert 7 * 384 * 10 < launch.flops.evaluate(env) < 7 * 384 * 30
    assert launch.parallel.evaluate(env) == 7


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5])
def test_few_columns_know_the_numbers_of_their_rows(columns: int) -> None:
    """Several rows share a vector, whose lanes are of different rows."""
    text = """def f(float(N,M) x) -> (first, one) {
      top(m) max=! x(n,m)
      first(m) min=! x(n,m) == top(m) ? n : N where n in 0:N
      one(n,m) = n == first(m) ? 1.0 : x(n,m) * n
    }"""
    function = ad.define(text).f
    for count in (1, 2, 7, 8, 9, 64, 333):
        x = np.random.default_rng(count).integers(0, 9, (count, columns)).astype(np.float32)
        first, one = function(x)
        number = np.arange(count, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(first, x.argmax(0))
        want = np.where(number == x.argmax(0), np.float32(1), x * number)
        np.testing.assert_array_equal(one, want)
    (definition,) = parse(text).values()
    kind = TensorType(float32, (as_size("N"), as_size("M")))
    group = instantiate(definition, (kind,), {}, Box.of(Dim("N"), Dim("M")))
    form = row_form(group, across=True)
    assert form is not None and fits_few_columns(form, 8)

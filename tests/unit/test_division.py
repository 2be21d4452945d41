"""Promise: a quotient is the float nearest to it, whoever asks; `precision="fast"` is asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.frontends.builder import Value

TYPES = (ad.float16, ad.float32, ad.float64)
SOFTMAX = """def softmax(float(R,C) x) -> (e, total, y) {
  top(r) max=! x(r,c)
  e(r,c) = exp(x(r,c) - top(r))
  total(r) +=! e(r,c)
  y(r,c) = e(r,c) / total(r) }"""


def by_constants(dtype: DType, divisors: list[float]) -> Callable[[np.ndarray], list[np.ndarray]]:
    """x divided by each of some numbers, in one kernel."""
    lines = [f"y{n}(i) = x(i) / ({value!r})" for n, value in enumerate(divisors)]
    results = ", ".join(f"y{n}" for n in range(len(divisors)))
    text = f"def f(T(N) x) -> ({results}) {{\n" + "\n".join(lines) + "\n}"
    return ad.define(text).f


def held(dtype: DType, divisors: list[float]) -> None:
    """Multiples of divisors and their neighbours, all values of a quotient's sign, divided.

    A literal beside half precision is a float32 (docs/language.md), so it need not be a float16.
    """
    kind = dtype.numpy
    wide = np.promote_types(kind, np.float32).type
    times = np.array([0, -0.0, 1, 2, 3, 5, 7, 61, np.inf, -1, np.nan], kind)
    f = by_constants(dtype, divisors)
    with np.errstate(all="ignore"):
        whole = (np.array(divisors, kind)[:, None] * times).astype(kind).ravel()
        x = np.concatenate([np.nextafter(whole, kind.type(0)), whole])
        for divisor, found in zip(divisors, f(x)):
            wanted = (x / wide(divisor)).astype(kind)
            np.testing.assert_array_equal(found, wanted)
            known = ~np.isnan(wanted)
            assert (np.signbit(found) == np.signbit(wanted))[known].all()
            np.testing.assert_array_equal(np.floor(found), np.floor(wanted))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_by_constants(dtype: DType) -> None:
    held(dtype, [41.0, 61.0, 3.0, 49.0, 8.0, -0.5, -7.0, -0.0, 1000.0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("first", range(1, 4097, 64))
def test_by_all_small_constants(dtype: DType, first: int) -> None:
    held(dtype, [float(value) for value in range(first, first + 64)])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_whole_numbers_stay_whole(dtype: DType) -> None:
    """Floor and conversion of x / c, as a model has them; 41 / 41 is 1."""
    g = ad.Builder("whole")
    x = g.input("x", dtype, (g.dim("n"),))
    for c in (41, 61):
        quotient = x / g.constant(dtype.numpy.type(c))
        g.output(f"floor{c}", g.floor(quotient))
        g.output(f"int{c}", g.cast(quotient, to=ad.int32))
    most = 2000 if dtype == ad.float16 else 5000
    numbers = np.arange(most)
    found = ad.compile(g.graph())(x=numbers.astype(dtype.numpy))
    for c in (41, 61):
        want = (numbers.astype(dtype.numpy) / dtype.numpy.type(c)).astype(np.int32)
        np.testing.assert_array_equal(found[f"int{c}"], want)
        np.testing.assert_array_equal(found[f"floor{c}"].astype(np.int32), want)
        exact = numbers[numbers % c == 0]
        np.testing.assert_array_equal(found[f"int{c}"][exact], exact // c)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_means_of_ones_are_one(dtype: DType) -> None:
    """At every count to 4096, along rows and across them; and where the count is a number."""
    g = ad.Builder("means")
    x = g.input("x", dtype, (g.dim("n"), g.dim("m")))
    g.output("rows", g.reduce_mean(x, axes=(1,)))
    g.output("columns", g.reduce_mean(x, axes=(0,)))
    model = ad.compile(g.graph())
    ones = np.ones(3 * 4096, dtype.numpy)
    for count in range(1, 4097):
        assert (model(x=ones[: 3 * count].reshape(3, count))["rows"] == 1).all(), count
        assert (model(x=ones[: 3 * count].reshape(count, 3))["columns"] == 1).all(), count
    for count in (41, 49, 55, 61):
        g = ad.Builder("mean")
        g.output("y", g.reduce_mean(g.input("x", dtype, (g.dim("n"), count)), axes=(1,)))
        assert (ad.compile(g.graph())(x=np.ones((5, count), dtype.numpy))["y"] == 1).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_largest_of_a_row_divided_by_itself_is_one(dtype: DType) -> None:
    """In rows of every magnitude, subnormal ones too; the others are divided correctly."""
    g = ad.Builder("largest")
    x = g.input("x", dtype, (g.dim("n"), g.dim("m")))
    g.output("y", x / g.reduce_max(x, axes=(1,), keepdims=True))
    model = ad.compile(g.graph())
    chance, kind = np.random.default_rng(5), np.finfo(dtype.numpy)
    powers = chance.uniform(np.log2(float(kind.smallest_subnormal)) + 1, kind.maxexp - 1, (2000, 1))
    for columns in (1, 7, 64):
        rows = np.exp2(powers) * chance.uniform(0.5, 1, (2000, columns))
        rows = rows.astype(dtype.numpy)
        found, largest = model(x=rows)["y"], rows.max(1, keepdims=True)
        assert (found[rows == largest] == 1).all()
        np.testing.assert_array_equal(found, rows / largest)


def pooled(g: ad.Builder, x: Value) -> Value:
    return g.average_pool(x, kernel=(7, 7))


def global_mean(g: ad.Builder, x: Value) -> Value:
    return g.reduce_mean(x, axes=(2, 3))


@pytest.mark.parametrize("pool", [pooled, global_mean])
@pytest.mark.parametrize("side", [7, 11])
def test_pools_of_ones_are_one(pool: Callable[[ad.Builder, Value], Value], side: int) -> None:
    g = ad.Builder("pool")
    x = g.input("x", ad.float32, (g.dim("n"), 3, g.dim("h"), g.dim("w")))
    g.output("y", pool(g, x))
    found = ad.compile(g.graph())(x=np.ones((2, 3, side, side), np.float32))["y"]
    assert found.size and (found == 1).all()


# ---- asked for ---------------------------------------------------------------------------------


def test_fast_is_near_and_exact_is_exact() -> None:
    x = np.random.default_rng(0).standard_normal((200, 41)).astype(np.float32)
    found = {}
    for precision in ("exact", "fast"):
        made = ad.define(SOFTMAX, precision=precision).softmax(x)
        wanted = made.e / made.total[:, None]
        found[precision] = (made.y == wanted).all()
        assert (abs(made.y - wanted) <= 2 * np.spacing(wanted)).all()
    assert found == {"exact": True, "fast": False}


def test_each_way_of_asking() -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) / 41 }"
    x = np.arange(1, 200, dtype=np.float32)
    right, product = x / np.float32(41), x * np.float32(1 / 41)
    assert not (right == product).all()
    for functions in (
        ad.define(text, precision="fast"),
        ad.define(text, options="f: precision=fast"),
        ad.define(text, options={"f": {"precision": "fast"}}),
        ad.define("# option f: precision=fast\n" + text),
    ):
        np.testing.assert_array_equal(functions.f(x), product)
    again = ad.define("# option f: precision=fast\n" + text, precision="exact")
    np.testing.assert_array_equal(again.f(x), right)
    g = ad.Builder("f")
    value = g.input("x", ad.float32, (g.dim("n"),))
    g.output("y", value / 41)
    np.testing.assert_array_equal(ad.compile(g)(x=x)["y"], right)
    np.testing.assert_array_equal(ad.compile(g, precision="fast")(x=x)["y"], product)


@pytest.mark.parametrize("given", ["quick", 2, ""])
def test_an_unknown_precision(given: object) -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) / 41 }"
    with pytest.raises(
        ad.OptionError, match=r"expected 'exact', 'fast', 'tf32', 'bfloat16x3', .* or 'int8'"
    ):
        ad.define(text, precision=given)
    with pytest.raises(
        ad.OptionError, match=r"expected 'exact', 'fast', 'tf32', 'bfloat16x3', .* or 'int8'"
    ):
        ad.compile(ad.Builder("f"), precision=given)

"""Promise: what is computed of constants alone is computed once, but for what is wide and cheap."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.frontends.builder import Value
from tests.unit.compiler.passes.graphs import weights

ROWS, COLUMNS = 40, 24


def spread(g: ad.Builder) -> Value:
    """A sum of a column and a row, which is larger than both."""
    column = g.reshape(g.constant(weights(ROWS)), shape=(ROWS, 1))
    return column + g.constant(weights(COLUMNS, seed=1))


HALF = numpy.float32(0.5)
WIDE = weights(ROWS)[:, None] + weights(COLUMNS, seed=1)


@pytest.mark.parametrize("name", ["cos", "mul", "turned"])
def test_weights_that_a_model_computes(name: str) -> None:
    """They are packed once, as others are."""
    g = ad.Builder("weights")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), ROWS))
    half = spread(g) * HALF
    if name == "turned":
        half = g.transpose(g.reshape(half, shape=(COLUMNS, ROWS)), perm=(1, 0))
    g.output("y", g.matmul(x, g.cos(half) if name == "cos" else half))
    model = ad.compile(g, threads=1)
    assert "1 launch of 1 kernel" in model.explain()
    held = numpy.cos(WIDE * HALF) if name == "cos" else WIDE * HALF
    held = held.reshape(COLUMNS, ROWS).T if name == "turned" else held
    for n in (0, 1, 9):
        given = weights(n, ROWS, seed=2)
        exact = given.astype(float) @ held
        found = model(x=given)["y"]
        numpy.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)  # sums of 40 in float32


@pytest.mark.parametrize(("name", "numbers"), [("cos", ROWS * COLUMNS), ("mul", 88)])
def test_what_elements_read_is_kept_where_it_takes_long(name: str, numbers: int) -> None:
    g = ad.Builder("elements")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), ROWS, COLUMNS))
    half = spread(g) * HALF
    g.output("y", x + (g.cos(half) if name == "cos" else half))
    model = ad.compile(g, threads=1)
    assert f"constants {4 * numbers} bytes" in model.explain()
    given = weights(9, ROWS, COLUMNS)
    held = numpy.cos(WIDE * HALF) if name == "cos" else WIDE * HALF
    numpy.testing.assert_allclose(model(x=given)["y"], given + held, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", ["plain", "reshaped"])
def test_products_of_weights_are_made_once(way: str) -> None:
    """As DeBERTa's projections of its relative positions: 1 x 1024 x 128 x 128 steps."""
    left, right = weights(1, 1024, 128), weights(128, 128, seed=1)
    g = ad.Builder("positions")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), 128))
    product = g.matmul(g.constant(left), g.constant(right))
    if way == "reshaped":
        product = g.reshape(product, shape=(1024, 128))
    else:
        product = g.squeeze(product, axes=(0,))
    g.output("y", g.matmul(x, g.transpose(product, perm=(1, 0))))
    model = ad.compile(g, threads=1)
    assert "1 launch of 1 kernel" in model.explain()
    assert "constants 524288 bytes" in model.explain()
    for n in (0, 1, 9):
        given = weights(n, 128, seed=2)
        exact = given.astype(float) @ (left[0].astype(float) @ right).T
        # sums of 128 in float32
        numpy.testing.assert_allclose(model(x=given)["y"], exact, rtol=1e-4, atol=1e-3)


def test_a_result_above_the_budget_is_made_in_every_call() -> None:
    g = ad.Builder("large")
    n = g.dim("n", 0, 2)
    x = g.input("x", ad.float32, (n, 8192))
    outer = g.matmul(g.constant(weights(8192, 2)), g.constant(weights(2, 8192, seed=1)))
    g.output("y", g.reduce_sum(g.exp(outer), axes=(0,)) + x)
    assert "constants 131072 bytes" in ad.compile(g, threads=1).explain()


def test_a_long_sum_of_few_numbers_does_not_hold_up_the_compiler() -> None:
    """Its result is small, and its steps are many: 2 ** 40."""
    g = ad.Builder("long")
    x = g.input("x", ad.float32, (g.dim("n", 0, 2),))
    wide = g.expand(g.constant(weights(1, 1)), shape=(1 << 20, 1 << 20))
    g.output("y", g.reduce_sum(g.exp(wide)) + x)
    assert "no kernel for products takes it" in ad.compile(g, threads=1).explain()

"""Promise: what is computed of constants alone is computed once, but for what is wide and cheap."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.frontends.builder import Value
from tests.unit.passes.graphs import weights

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
    assert f"constants: {4 * numbers} bytes" in model.explain()
    given = weights(9, ROWS, COLUMNS)
    held = numpy.cos(WIDE * HALF) if name == "cos" else WIDE * HALF
    numpy.testing.assert_allclose(model(x=given)["y"], given + held, rtol=1e-6, atol=1e-6)

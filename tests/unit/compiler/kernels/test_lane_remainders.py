"""Promise: quotients and remainders by a size, and what is read at them, are right in all lanes."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

TEXTS = ad.define("""
def repeated(T(M) x, float(N) like) -> (y) { y(i) = x(i % M) where i in 0:N }
def wheel(T(M) x, float(N) like) -> (y) { y(i) = x((i - 5) % M) where i in 0:N }
def mirrored(T(M) x, float(N) like) -> (y) {
  y(i) = x(min(abs(i - 3), M - 1)) where i in 0:N
}
def numbers(float(M) x, float(N) like) -> (q, r) {
  q(i) = (i - 7) // M where i in 0:N
  r(i) = (i - 7) % M where i in 0:N
}
""")
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 129, 960, 961, 1023, 1024, 1025, 2500)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_places_that_repeat_and_turn_back(dtype: str) -> None:
    for size in SIZES:
        x = numpy.random.default_rng(size).integers(0, 99, size).astype(dtype)
        for count in (0, 1, 17, 200, 3000):
            like, places = numpy.zeros(count, numpy.float32), numpy.arange(count)
            numpy.testing.assert_array_equal(TEXTS.repeated(x, like), x[places % size])
            numpy.testing.assert_array_equal(TEXTS.wheel(x, like), x[(places - 5) % size])
            turned = numpy.minimum(abs(places - 3), size - 1)
            numpy.testing.assert_array_equal(TEXTS.mirrored(x, like), x[turned])


def test_quotients_and_remainders_themselves() -> None:
    for size in SIZES:
        found = TEXTS.numbers(numpy.zeros(size, numpy.float32), numpy.zeros(3000, numpy.float32))
        places = numpy.arange(3000) - 7
        numpy.testing.assert_array_equal(found.q, places // size)
        numpy.testing.assert_array_equal(found.r, places % size)


def test_rows_that_repeat() -> None:
    g = ad.Builder("g")
    n, m = g.dim("n", 0, None), g.dim("m", 0, None)
    g.output("y", g.tile(g.input("x", ad.float32, (n, m)), repeats=(2, 3)))
    model = ad.compile(g.graph())
    for shape in ((0, 3), (3, 0), (1, 1), (5, 1), (2, 3), (3, 16), (4, 33), (1, 1000)):
        x = numpy.random.default_rng(0).random(shape, numpy.float32)
        numpy.testing.assert_array_equal(model(x=x)["y"], numpy.tile(x, (2, 3)))

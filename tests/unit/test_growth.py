"""Promise: what a compile does grows with its model, however values are read or sizes nest."""

from __future__ import annotations

import numpy

import anydim as ad


def test_what_is_added_to_itself_again_and_again() -> None:
    """Read twice each, 60 values would be computed 2**60 times without being kept."""
    graph = ad.Builder("residual")
    value = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 8))
    for _ in range(60):
        value = graph.add(value, graph.sigmoid(value))
    graph.output("y", value)
    data = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(3, 8)
    expected = data.astype(numpy.float64)
    for _ in range(60):
        expected = expected + 1 / (1 + numpy.exp(-expected))
    found = ad.compile(graph)(data)["y"]
    numpy.testing.assert_allclose(found, expected, rtol=1e-5)

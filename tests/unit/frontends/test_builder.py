"""Promise: a builder makes graphs whose values have names of their own."""

from __future__ import annotations

import numpy

import anydim as ad
from anydim.graph.evaluate import evaluate


def test_the_results_of_one_node_have_different_names() -> None:
    g = ad.Builder("parts")
    n = g.dim("n", 0, 9)
    x = g.input("x", ad.float32, (n, 4))
    left, right = g.split(x, axis=1, sizes=(1, 3))
    assert left.name != right.name
    g.output("left", left)
    g.output("right", right)
    array = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)
    came = evaluate(g.graph(), {"x": array})
    numpy.testing.assert_array_equal(came["left"], array[:, :1])
    numpy.testing.assert_array_equal(came["right"], array[:, 1:])

"""Promise: a builder makes graphs whose values have names of their own."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.errors import GraphError
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


def test_operands_may_come_as_one_list() -> None:
    made = []
    for spread in (False, True):
        g = ad.Builder("joined")
        x, y = (g.input(name, ad.float32, (g.dim(f"n{name}"), 2)) for name in "xy")
        g.output("z", g.concat(x, y, axis=0) if spread else g.concat([x, y], axis=0))
        made.append(g.graph())
    assert made[0] == made[1]
    with pytest.raises(GraphError, match="cannot take list"):
        g.relu([1.0, [x]])

"""Promise: what a routine cannot do is an error that says which size or argument is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DTYPES
from anydim.base.errors import DimError, GraphError
from anydim.sizes import as_size


def graph_of(operator: str, *inputs: str, **attributes):
    """A graph of one operator over dims n and k."""
    g = ad.Builder("model")
    for name in ("n", "k"):
        g.dim(name, 0, 100)
    given = []
    for number, text in enumerate(inputs):
        dtype, _, shape = text.rstrip("]").partition("[")
        sizes = [as_size(part.strip()) for part in shape.split(",") if part.strip()]
        given.append(g.input(f"x{number}", DTYPES[dtype], sizes))
    made = getattr(g, operator)(*given, **attributes)
    for number, value in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(f"y{number}", value)
    return g.graph()


def test_more_than_there_are():
    g = ad.Builder("model")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9),))
    other = g.input("other", ad.float32, (g.dim("k", 0, 9),))
    best, _ = g.top_k(x * 2.0, k=as_size("k"))
    g.output("y", best + other)
    model = ad.compile(g.graph())
    three, four = np.zeros(3, np.float32), np.zeros(4, np.float32)
    model(x=three, other=three)
    with pytest.raises(DimError, match=r"k is at most.*: k <= n does not hold"):
        model(x=three, other=four)
    assert len(model(x=four, other=three)["y"]) == 3


def test_a_condition_longer_than_its_axis():
    graph = graph_of("compress_fill", "float32[n]", "bool[k]", count=0, axis=0)
    model = ad.compile(graph)
    x, condition = np.zeros(3, np.float32), np.zeros(4, bool)
    needed = "'n' must be at least 4 at k = 4"
    why = rf"do not fit at k = 4, n = 3; {needed}\n.*condition is not"
    with pytest.raises(DimError, match=why):
        model(x0=x, x1=condition)


def test_boxes_and_scores_of_different_numbers():
    inputs = "float32[1, n, 4]", "float32[1, 2, k]", "int64[]", "float32[1]"
    model = ad.compile(graph_of("non_max_suppression_fill", *inputs))
    given = {
        "x0": np.zeros((1, 3, 4), np.float32), "x1": np.zeros((1, 2, 4), np.float32),
        "x2": np.array(1), "x3": np.zeros(1, np.float32),
    }  # fmt: skip
    with pytest.raises(DimError, match=r"a score for each box.*: n == k does not hold"):
        model(**given)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "problem"),
    [
        ("sort", ("float32[n]",), {"axis": 1}, "axis 1 of a tensor with 1 axes"),
        ("sort", ("float32[n]", "float32[n]"), {}, "takes 1 input, not 2"),
        ("sort", ("float8_e5m2[n]",), {}, "does not order elements of type float8_e5m2"),
        ("top_k", ("float32[]",), {"k": 1}, "axes that exist: none"),
        ("top_k", ("float32[3]",), {"k": 4}, "4 <= 3 does not hold"),
        ("top_k", ("float32[3]",), {"k": -1}, "0 <= -1 does not hold"),
        ("top_k", ("float32[3]",), {}, "needs its attribute 'k'"),
        ("unique_fill", ("float32[n]",), {"axis": -2}, "axis -2"),
        ("nonzero_fill", ("bool[]",), {"count": 1}, "a scalar has no positions"),
        ("compress_fill", ("float32[n]", "bool[n, n]"), {"count": 1}, "not a vector"),
        ("cum_sum", ("float32[n]",), {"axis": 3}, "axis 3"),
        ("cum_prod", ("int4[n]",), {}, "type int4"),
        (
            "non_max_suppression_fill",
            ("float32[n, 4]", "float32[n, 4]", "int64[]", "float32[]"), {}, "expected boxes",
        ),
        (
            "non_max_suppression_fill",
            ("float32[1, n, 5]", "float32[1, 1, n]", "int64[]", "float32[]"), {},
            "a box has 4 numbers: 5 == 4",
        ),
    ],
)  # fmt: skip
def test_misuse(operator, inputs, attributes, problem):
    with pytest.raises(GraphError) as caught:
        graph_of(operator, *inputs, **attributes)
    assert problem in str(caught.value)

"""Sums of one element are no sums: a product by a single row is its elements' products."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.graph.nodes import Graph

ROW = numpy.arange(-18, 19).reshape(1, 37)


def product(dtype: DType) -> Graph:
    """y = x w, with one column of x and one row of w, which is a constant."""
    g = ad.Builder("thin")
    x = g.input("x", dtype, (g.dim("m", 0, 100), 1))
    g.output("y", g.matmul(x, g.constant(ROW.astype(str(dtype)))))
    return g.graph()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.int32, ad.float16], ids=str)
def test_a_product_by_one_row_is_pointwise(dtype: DType) -> None:
    model = ad.compile(product(dtype))
    assert "pointwise" in str(model.explain(details=True)) and "contraction" not in str(
        model.explain(details=True)
    )
    for rows in (0, 1, 7, 100):
        x = (numpy.arange(rows) / 2).astype(str(dtype)).reshape(rows, 1)
        found = model(x=x)["y"]
        assert numpy.array_equal(found, x * ROW.astype(str(dtype)))
        if rows:
            assert model(x=x[3:4])["y"].tobytes() == found[3:4].tobytes()

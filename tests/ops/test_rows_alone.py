"""Promise: a row has the same bits alone, in any batch and on any number of threads.

Every operator record, along each dim that its meaning treats row by row. Sizes are around the
groups of rows for which products have kernels of their own. Columns of a product are no rows: one
that is alone is summed as a dot product (docs/numerics.md).
"""

from __future__ import annotations

from itertools import product

import pytest

import anydim as ad
from anydim.base.errors import DimError
from anydim.compiler.graph.operator import OPERATORS
from tests.fuzz.metamorphic import differing
from tests.fuzz.points import shown
from tests.fuzz.rows import by_rows, rows_of
from tests.ops.cases import CASES
from tests.ops.test_operators import build, feed

SIZES = ({"n": 17, "m": 5}, {"n": 9, "m": 13})
PARTS = (1, 2, 3, 4, 7)
PRODUCTS = ("matmul", "conv", "einsum", "gemm")
"""What has a part of these in its name is tested with the fast tests, the rest with the slow."""
ALL = [
    pytest.param(
        name, number, id=f"{name}-{number}",
        marks=[] if any(part in name for part in PRODUCTS) else [pytest.mark.slow],
    )
    for name, cases in CASES.items()
    for number in range(len(cases))
]  # fmt: skip


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize(("name", "number"), ALL)
def test_a_row_is_itself_in_every_batch(name: str, number: int) -> None:
    case = CASES[name][number]
    graph = build(name, case)
    models = [ad.compile(graph, threads=count) for count in (1, 2)]
    checked = 0
    for dim, sizes in product(shown(graph), SIZES):
        rows = rows_of(graph, dim)
        if rows is None:
            continue
        inputs = feed(graph, case, OPERATORS[name].domain, sizes)
        count = sizes[dim.name]
        try:
            if not by_rows(graph, rows, inputs, count):
                continue
            whole = models[0](**inputs)
        except DimError:
            continue
        assert not differing(models[1](**inputs), whole)
        column = name in PRODUCTS and rows.axes["y0"] == whole["y0"].ndim - 1
        for size in PARTS[column:]:
            for start in range(0, count - size + 1, size):
                part = rows.part(inputs, start, start + size)
                expected = rows.part(whole, start, start + size)
                for model in models:
                    assert not differing(model(**part), expected), (dim.name, start, size)
        checked += 1
    if not checked:
        pytest.skip("no dim that it treats row by row")

"""Tables that are computed from constants: only the rows that are looked up."""

from __future__ import annotations

import numpy

import anydim as ad
from anydim.base.dtypes import float32, int64

ROWS, WIDTH = 5000, 900  # more than is folded


def test_a_table_of_bytes_is_read_as_bytes() -> None:
    random = numpy.random.default_rng(3)
    table = random.integers(0, 256, (ROWS, WIDTH), dtype=numpy.uint8)
    scales = random.choice(numpy.float32([0.5, 0.25, 2]), ROWS)  # exact, whatever is fused
    g = ad.Builder("lookup")
    n = g.dim("n", 0, 9)
    wide = g.dequantize(g.constant(table), g.constant(scales), axis=0)
    g.output("y", g.gather(wide, g.input("rows", int64, (n,)), axis=0) + 1.0)
    model = ad.compile(g, threads=1)
    assert str(ROWS * WIDTH) not in model.explain()
    for rows in ([], [0, ROWS - 1, -1], [7]):
        found = model(rows=numpy.array(rows, numpy.int64))["y"]
        expected = (table * scales[:, None])[rows] + numpy.float32(1)
        numpy.testing.assert_array_equal(found, expected.reshape(-1, WIDTH))
    numpy.testing.assert_raises(ad.InputError, model, rows=numpy.array([ROWS]))


def test_a_table_that_several_nodes_make_is_read_as_bytes() -> None:
    """Exporters of tables of bytes write a Cast and a Mul, not a DequantizeLinear."""
    random = numpy.random.default_rng(4)
    table = random.integers(-128, 128, (ROWS, WIDTH), dtype=numpy.int8)
    scales = random.choice(numpy.float32([0.5, 0.25, 2]), (1, WIDTH))
    g = ad.Builder("lookup")
    n = g.dim("n", 0, 9)
    wide = g.cast(g.constant(table), to=float32) * g.constant(scales)
    g.output("y", g.gather(wide, g.input("rows", int64, (n,)), axis=0) + 1.0)
    model = ad.compile(g, threads=1)
    assert str(ROWS * WIDTH) not in model.explain()
    for rows in ([], [0, ROWS - 1, -1], [7]):
        found = model(rows=numpy.array(rows, numpy.int64))["y"]
        expected = (table * scales)[rows] + numpy.float32(1)
        numpy.testing.assert_array_equal(found, expected.reshape(-1, WIDTH))

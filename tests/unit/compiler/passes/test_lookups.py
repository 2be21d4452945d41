"""Tables that are computed from constants: only the rows that are looked up."""

from __future__ import annotations

import numpy
import onnx
import onnx.parser
import onnx.shape_inference
import pytest

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
    assert str(ROWS * WIDTH) not in model.explain(details=True)
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
    assert str(ROWS * WIDTH) not in model.explain(details=True)
    for rows in ([], [0, ROWS - 1, -1], [7]):
        found = model(rows=numpy.array(rows, numpy.int64))["y"]
        expected = (table * scales)[rows] + numpy.float32(1)
        numpy.testing.assert_array_equal(found, expected.reshape(-1, WIDTH))


@pytest.mark.parametrize(("width", "launches"), ((7, 2), (64, 1)))
def test_short_rows_that_a_batch_repeats_are_written_once(width: int, launches: int) -> None:
    """What finds a row costs as much as a few elements, in each item of a batch again."""
    g = ad.Builder("biases")
    n, m = g.dim("n", 0, 9), g.dim("m", 0, 40)
    table = numpy.random.default_rng(5).random((20, width), numpy.float32)
    rows = g.gather(g.constant(table), g.input("rows", int64, (m,)), axis=0)
    g.output("y", g.input("x", float32, (n, m, width)) + rows)
    model = ad.compile(g, threads=1)
    for count, some in ((0, 3), (1, 0), (1, 1), (4, 17)):
        x = numpy.random.default_rng(6).random((count, some, width), numpy.float32)
        rows = numpy.arange(some) % 20 - 3
        numpy.testing.assert_array_equal(model(x=x, rows=rows)["y"], x + table[rows])
    assert len(model.plan(n=4, m=17).launches) == launches
    numpy.testing.assert_raises(ad.InputError, model, x=x, rows=numpy.full(17, 20))


@pytest.mark.parametrize("interleaved", (False, True))
@pytest.mark.parametrize("flat", (False, True))
def test_rows_are_turned_in_one_kernel(interleaved: bool, flat: bool) -> None:
    """Cosines and sines are read where positions say, and heads where they lie."""
    shape = "n,t,256" if flat else "n,2,t,128"
    heads = "num_heads=2, " if flat else ""
    node = f"RotaryEmbedding <{heads}interleaved={int(interleaved)}> (x, c, s, p)"
    text = f"""<ir_version: 10, opset_import: ["": 23]>
    g (float[{shape}] x, float[50,64] c, float[50,64] s, int64[n,t] p) => (y) {{ y = {node} }}"""
    made = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    model = ad.compile(made.SerializeToString(), threads=1)
    random = numpy.random.default_rng(7)
    c, s = random.random((2, 50, 64), numpy.float32)
    for n, t in ((0, 1), (1, 1), (2, 3), (1, 50)):
        x = random.random((n, 2, t, 128), numpy.float32)
        p = random.integers(-50, 50, (n, t))
        pairs = (
            x.reshape(n, 2, t, 64, 2) if interleaved else x.reshape(n, 2, t, 2, 64).swapaxes(3, 4)
        )
        a, b = numpy.moveaxis(pairs, -1, 0)
        cos, sin = c[p][:, None], s[p][:, None]
        turned = numpy.stack([cos * a - sin * b, sin * a + cos * b], -1)
        turned = turned if interleaved else turned.swapaxes(3, 4)
        turned = turned.reshape(x.shape)
        given, wanted = (
            each.swapaxes(1, 2).reshape(n, t, 256) if flat else each for each in (x, turned)
        )
        found = model(x=given, c=c, s=s, p=p)["y"]
        numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert len(model.plan(n=2, t=3).launches) == 1


@pytest.mark.parametrize(
    ("columns", "launches"), ((None, 2), (3, 1)), ids=["rows of any length", "short rows"]
)
def test_elements_that_are_looked_up_in_rows_are_turned_after_it(
    columns: int | None, launches: int
) -> None:
    """A reader whose neighbours lie in other rows would touch a line of each for every element."""
    g = ad.Builder("positions")
    n, m = g.dim("n", 0, 80), g.dim("m", 0, 80) if columns is None else columns
    at = g.input("at", int64, (n, m))
    found = g.gather_elements(g.input("scores", float32, (n, 50)), at, axis=1)
    g.output("y", g.input("x", float32, (m, n)) + g.transpose(found, perm=(1, 0)))
    model = ad.compile(g, threads=1)
    random = numpy.random.default_rng(8)
    for rows, across in ((0, 3), (3, 0), (1, 1), (16, 17), (31, 64), (80, 80)):
        across = across if columns is None else columns
        x, scores = random.random((across, rows), "f"), random.random((rows, 50), "f")
        at = random.integers(-50, 50, (rows, across))
        expected = x + numpy.take_along_axis(scores, at % 50, 1).T
        numpy.testing.assert_array_equal(model(x=x, scores=scores, at=at)["y"], expected)
    assert len(model.plan(n=16, **({"m": 17} if columns is None else {})).launches) == launches
    with pytest.raises(ad.InputError):
        model(x=x, scores=scores, at=numpy.full(at.shape, 50))

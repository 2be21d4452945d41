"""Promise: rows that do not fill a vector are right, and the same alone as among others."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType

ROWS = (1, 3, 15, 16, 17, 67)
COLUMNS = (1, 2, 3, 4, 5, 8, 11, 15, 16, 17, 31, 32, 33)
TOLERANCE = {ad.float32: 1e-6, ad.float16: 2e-3, ad.float64: 1e-14}  # a few units in the last place


def softmax(dtype: DType) -> ad.Model:
    g = ad.Builder("g")
    x = g.input("x", dtype, [g.dim("n", 0, None), g.dim("m", 0, None)])
    g.output("y", g.softmax(x, axis=1))
    g.output("top", g.reduce_max(x, axes=(1,)))
    return ad.compile(g.graph(), threads=2)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_softmax(dtype: DType) -> None:
    model, random = softmax(dtype), numpy.random.default_rng(0)
    for rows in ROWS:
        for columns in COLUMNS:
            x = random.uniform(-9, 9, (rows, columns)).astype(dtype.numpy)
            found = model(x=x)
            e = numpy.exp(x.astype(numpy.float64) - x.max(1, keepdims=True))
            expected = e / e.sum(1, keepdims=True)
            numpy.testing.assert_allclose(found["y"], expected, TOLERANCE[dtype], TOLERANCE[dtype])
            numpy.testing.assert_array_equal(found["top"], x.max(1))
            alone = model(x=x[rows // 2 : rows // 2 + 1])
            assert alone["y"].tobytes() == found["y"][rows // 2].tobytes()


@pytest.mark.parametrize("dtype", [ad.int8, ad.int32, ad.int64], ids=str)
def test_places_and_sums_of_integers(dtype: DType) -> None:
    g = ad.Builder("g")
    x = g.input("x", dtype, [g.dim("n", 0, None), g.dim("m", 1, None)])
    g.output("place", g.arg_max(x, axis=1))
    g.output("total", g.reduce_sum(x, axes=(1,)))
    model, random = ad.compile(g.graph()), numpy.random.default_rng(0)
    for rows in ROWS:
        for columns in COLUMNS:
            x = random.integers(-3, 3, (rows, columns)).astype(dtype.numpy)
            found = model(x=x)
            numpy.testing.assert_array_equal(found["place"][:, 0], x.argmax(1))
            numpy.testing.assert_array_equal(found["total"], x.sum(1, dtype=dtype.numpy))


def test_what_differs_by_row_or_by_column_alone() -> None:
    """Operands of one axis need no panel; NaN and infinities stay in their rows."""
    g = ad.Builder("g")
    n, m = g.dim("n", 0, None), g.dim("m", 0, None)
    x, by_row = g.input("x", ad.float32, [n, m]), g.input("s", ad.float32, [n, 1])
    by_column = g.input("b", ad.float32, [m])
    g.output("y", g.softmax(x * by_row + by_column, axis=1))
    model, random = ad.compile(g.graph()), numpy.random.default_rng(0)
    for rows, columns in ((1, 3), (17, 5), (33, 16), (40, 29)):
        x = random.uniform(-3, 3, (rows, columns)).astype(numpy.float32)
        s, b = (
            random.uniform(-2, 2, shape).astype(numpy.float32) for shape in ((rows, 1), columns)
        )
        x[rows // 2, 0] = numpy.nan
        with numpy.errstate(invalid="ignore"):
            e = numpy.exp((z := x.astype(float) * s + b) - z.max(1, keepdims=True))
        expected = e / e.sum(1, keepdims=True)
        numpy.testing.assert_allclose(model(x=x, s=s, b=b)["y"], expected, 3e-6, 3e-6)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_columns(dtype: DType) -> None:
    """Few and many: a column has the bits that it has beside others."""
    g = ad.Builder("g")
    x = g.input("x", dtype, [g.dim("k", 0, None), g.dim("n", 0, None), g.dim("m", 0, None)])
    g.output("y", g.softmax(x, axis=1))
    for name in ("reduce_max", "reduce_l2", "reduce_prod", "reduce_mean"):
        g.output(name, getattr(g, name)(x, axes=(1,)))
    model, random = ad.compile(g.graph(), threads=2), numpy.random.default_rng(0)
    for rows in (1, 4, 5, 33):
        x = random.uniform(0.7, 1.3, (2, rows, 40)).astype(dtype.numpy)
        whole = model(x=x)
        e = numpy.exp(x.astype(numpy.float64) - x.max(1, keepdims=True))
        tolerance = 4 * TOLERANCE[dtype]
        numpy.testing.assert_allclose(whole["y"], e / e.sum(1, keepdims=True), tolerance, tolerance)
        wide = x.astype(numpy.float64)
        numpy.testing.assert_allclose(whole["reduce_prod"], wide.prod(1), tolerance)
        numpy.testing.assert_allclose(whole["reduce_mean"], wide.mean(1), tolerance)
        norm = numpy.sqrt((wide**2).sum(1))
        numpy.testing.assert_allclose(whole["reduce_l2"], norm, tolerance)
        for columns in (*range(1, 10), 15, 16, 17, 31, 33):
            some = model(x=numpy.ascontiguousarray(x[..., 3 : 3 + columns]))
            for name, result in some.items():
                expected = numpy.ascontiguousarray(whole[name][..., 3 : 3 + columns])
                assert result.tobytes() == expected.tobytes(), (name, rows, columns)


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_one_place(threads: int) -> None:
    """Channels are scaled where lanes run along places, and along channels of one place each."""
    g = ad.Builder("g")
    n, c, h, w = (g.dim(name, 0, None) for name in "nchw")
    x = g.input("x", ad.float32, [n, c, h, w])
    scale, shift = (g.input(name, ad.float32, [c, 1, 1]) for name in ("scale", "shift"))
    by_image = g.input("by_image", ad.float32, [n, 1, 1, 1])
    g.output("y", g.exp(x * scale + shift) * by_image)
    model, random = ad.compile(g.graph(), threads=threads), numpy.random.default_rng(0)
    sizes = [(2, 5, 1, 1), (3, 16, 1, 1), (1, 17, 1, 1), (4, 67, 1, 1), (0, 3, 1, 1), (3, 0, 1, 1),
             (5, 1, 1, 1), (2, 5, 1, 2), (2, 7, 3, 3), (2, 3, 0, 1), (400, 300, 1, 1)]  # fmt: skip
    for images, channels, height, width in sizes:
        shapes = ((images, channels, height, width), (channels, 1, 1), (channels, 1, 1))
        arrays = [random.uniform(-1, 1, s).astype(numpy.float32) for s in shapes]
        last = random.uniform(-1, 1, (images, 1, 1, 1)).astype(numpy.float32)
        found = model(x=arrays[0], scale=arrays[1], shift=arrays[2], by_image=last)["y"]
        wide = [a.astype(float) for a in arrays]
        expected = numpy.exp(wide[0] * wide[1] + wide[2]) * last
        numpy.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)

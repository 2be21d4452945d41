"""Promise: groups without reductions that differ in numbers alone share a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad

Layer = Callable[[ad.Builder, Any, int], Any]
FUNCTIONS: dict[str, tuple[Layer, Callable[[numpy.ndarray, int], numpy.ndarray]]] = {
    "all elements": (lambda g, x, c: g.relu(x + x), lambda x, c: numpy.maximum(x + x, 0)),
    "rows": (
        lambda g, x, c: x + numpy.arange(c, dtype=numpy.float32)[:, None, None],
        lambda x, c: x + numpy.arange(c, dtype=numpy.float32)[:, None, None],
    ),
    "parts": (lambda g, x, c: x[:, 16:], lambda x, c: x[:, 16:]),
}
CHANNELS = (32, 64, 48, 320)


def layers(name: str, lo: int = 0, hi: int | None = None) -> ad.Builder:
    """The layer on images of several numbers of channels, at half and at a quarter of the size."""
    g = ad.Builder("layers")
    dims = [g.dim(each, lo, hi) for each in ("n", "h", "w")]
    for number, channels in enumerate(CHANNELS):
        n, h, w = dims
        x = g.input(f"x{number}", ad.float32, (n, channels, h * 2**number, w * 2**number))
        g.output(f"y{number}", FUNCTIONS[name][0](g, x, channels))
    return g


def kernels(model: Any) -> list[str]:
    return [site.kernel for site in model.program.sites]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_make_no_kernels(name: str) -> None:
    """One kernel of all elements; of rows, one for each of their lengths."""
    model = ad.compile(layers(name))
    most = {"all elements": 1}.get(name, len(CHANNELS))
    assert len(set(kernels(model))) <= most
    generator = numpy.random.default_rng(0)
    for n, h, w in ((0, 1, 1), (1, 0, 1), (1, 1, 1), (2, 3, 5), (1, 7, 4)):
        given = {
            f"x{i}": generator.standard_normal((n, c, h * 2**i, w * 2**i), numpy.float32)
            for i, c in enumerate(CHANNELS)
        }
        found = model(**given)
        for number, (x, channels) in enumerate(zip(given.values(), CHANNELS)):
            wanted = FUNCTIONS[name][1](x, channels)
            numpy.testing.assert_array_equal(found[f"y{number}"], wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_change_no_result(name: str) -> None:
    bounded, free = (ad.compile(layers(name, 1, hi)) for hi in (6, None))
    generator = numpy.random.default_rng(1)
    given = {
        f"x{i}": generator.standard_normal((2, c, 3 * 2**i, 2 * 2**i), numpy.float32)
        for i, c in enumerate(CHANNELS)
    }
    for left, right in zip(bounded(**given).values(), free(**given).values()):
        numpy.testing.assert_array_equal(left, right)


def test_concatenations_of_any_rank_and_axis_share_a_kernel() -> None:
    g, shapes = ad.Builder("joined"), list[tuple[tuple[int, ...], int]]()
    n, wanted = g.dim("n"), {}
    shapes = [((32, 7), 1), ((64, 3, 5), 1), ((48, 20), 2), ((320,), 1)]
    generator, given = numpy.random.default_rng(2), {}
    for number, (shape, axis) in enumerate(shapes):
        parts = [g.input(f"x{number}_{part}", ad.float32, (n, *shape)) for part in range(2)]
        g.output(f"y{number}", g.concat(*parts, axis=axis))
        arrays = [generator.standard_normal((3, *shape), numpy.float32) for _ in parts]
        given.update({f"x{number}_{part}": array for part, array in enumerate(arrays)})
        wanted[f"y{number}"] = numpy.concatenate(arrays, axis)
    model = ad.compile(g)
    assert len(set(kernels(model))) == 1
    for name, array in model(**given).items():
        numpy.testing.assert_array_equal(array, wanted[name])


def test_short_numbers_stay_numbers() -> None:
    """Loops over a few elements are unrolled: each number has a kernel."""
    g = ad.Builder("short")
    n = g.dim("n")
    for width in (2, 3, 5):
        x = g.input(f"x{width}", ad.float32, (n, width))
        y = g.input(f"y{width}", ad.float32, (n, 1))
        g.output(f"z{width}", x + y)
    assert len(set(kernels(ad.compile(g)))) == 3

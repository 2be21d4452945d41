"""Promise: results have their shapes and types, and large ones begin at a line of the cache."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.runtime.results import aligned, maker


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5), (513, 257), (1 << 19,), (7, 0, 9)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool"])
def test_arrays_are_whole_and_can_be_written(shape: tuple[int, ...], dtype: str) -> None:
    kind = numpy.dtype(dtype)
    made = [maker(shape, kind)(shape, kind) for _ in range(5)] + [aligned(shape, kind)]
    for array in made:
        assert array.shape == shape and array.dtype == dtype
        assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        array[...] = 1
        assert array.nbytes < 1 << 19 or array.ctypes.data % 64 == 0
    assert not any(numpy.shares_memory(made[0], other) for other in made[1:])


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 20), (1 << 62, 4), (1 << 48,)])
def test_no_room_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises((MemoryError, ValueError)):
        aligned(shape, numpy.dtype("float32"))


def test_large_results_of_calls_are_aligned_and_outlive_the_model() -> None:
    g = ad.Builder("scaled")
    x = g.input("x", "float32", ["n", "m"])
    g.output("y", g.mul(x, 2.0))
    model = ad.compile(g)
    inputs = [numpy.full((rows, 640), rows, numpy.float32) for rows in (203, 1, 512, 0, 203)]
    results = [model(x)["y"] for x in inputs]
    del model
    for x, y in zip(inputs, results):
        numpy.testing.assert_array_equal(y, 2 * x)
        assert y.nbytes < 1 << 19 or y.ctypes.data % 64 == 0

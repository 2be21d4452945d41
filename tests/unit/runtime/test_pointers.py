"""Promise: a call knows where its arrays lie, and its sizes, whatever came before."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.runtime.pointers import _pointers_by_ctypes, fill, pointers


def test_addresses_are_those_of_numpy() -> None:
    block = numpy.arange(24, dtype=numpy.float64).reshape(4, 6)
    arrays = [block, block[1:], block[:, ::2], block.T, block[::-1], numpy.zeros(()),
              numpy.zeros((0, 3)), numpy.frombuffer(b"abcdefgh", numpy.uint8)]  # fmt: skip
    assert (
        pointers(arrays) == _pointers_by_ctypes(arrays) == [array.ctypes.data for array in arrays]
    )


@pytest.mark.parametrize("bytes", [0, 1, 63, 64, 65, (1 << 16) - 1, 1 << 16, (1 << 16) + 1])
def test_as_many_bytes_are_filled_as_asked_for(bytes: int) -> None:
    source = numpy.random.default_rng(0).integers(0, 256, bytes + 8, numpy.uint8)
    target = numpy.full(bytes + 8, 7, numpy.uint8)
    fill(target, source.ctypes.data + 3, bytes)
    numpy.testing.assert_array_equal(target[:bytes], source[3 : bytes + 3])
    numpy.testing.assert_array_equal(target[bytes:], 7)


def test_sizes_are_bound_again_when_they_change_or_failed() -> None:
    g = ad.Builder("g")
    n, m = g.dim("n", 0, 64), g.dim("m", 0, 64)
    x, y = g.input("x", ad.float32, (n, m)), g.input("y", ad.float32, (n,))
    g.output("z", g.softmax(x, axis=-1))
    g.output("twice", y + y)
    model = ad.compile(g.graph())
    random = numpy.random.default_rng(0)
    for rows, columns in ((3, 5), (3, 5), (5, 3), (0, 7), (3, 5), (3, 5)):
        x, y = random.random((rows, columns), numpy.float32), random.random(rows, numpy.float32)
        for _ in range(2):
            with pytest.raises(ad.DimError):
                model(x=x, y=numpy.ones(rows + 1, numpy.float32))
            found = model(x=x, y=y)
            wanted = numpy.exp(x) / numpy.exp(x).sum(-1, keepdims=True)
            assert found["z"].shape == x.shape
            # float32 exponentials of numbers below 1: a few roundings each
            numpy.testing.assert_allclose(found["z"], wanted, rtol=1e-5)
            numpy.testing.assert_array_equal(found["twice"], y + y)

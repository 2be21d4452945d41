"""Small elements some steps apart: out of whole vectors, and nothing past the last is read."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DTYPES


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("kind", ["uint8", "int8", "float16", "int16", "float32"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_every_so_many(kind: str, step: int) -> None:
    g = ad.Builder("apart")
    n = g.dim("n", 0, 200)
    x = g.input("x", DTYPES[kind], (2, n))
    part = g.slice(x, starts=(0,), ends=(n,), axes=(1,), steps=(step,))
    g.output("y", g.maximum(part, g.constant(numpy.array(3, kind))))
    model = ad.compile(g, threads=1)
    for size in (0, 1, step, 15 * step + 1, 16 * step, 97, 200):
        x_ = numpy.random.default_rng(size).integers(0, 100, (2, size)).astype(kind)
        numpy.testing.assert_array_equal(model(x=x_)["y"], numpy.maximum(x_[:, ::step], 3))

"""Promise: what the CUDA target makes is right on a real device; skipped where there is none."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DeviceError
from anydim.devices.cuda import found

SIZES = (0, 1, 2, 31, 32, 33, 127, 1000, 4096)


def has_device() -> bool:
    try:
        return bool(found())
    except DeviceError:
        return False


pytestmark = pytest.mark.skipif(not has_device(), reason="no CUDA device")


def dense(g: ad.Builder, x: ad.Value) -> ad.Value:
    w = g.constant(numpy.random.default_rng(0).normal(size=(64, 48)).astype(numpy.float32))
    return g.relu(g.matmul(x, w))


PROGRAMS = {
    "dense": dense,
    "softmax": lambda g, x: g.softmax(x, axis=-1),
    "functions": lambda g, x: g.erf(g.tanh(g.exp(x))),
    "columns": lambda g, x: g.reduce_sum(x, axes=(0,)),
    "transposed": lambda g, x: g.transpose(x, perm=(1, 0)),
    "attention": lambda g, x: g.matmul(
        g.softmax(g.matmul(x, g.transpose(x, perm=(1, 0))), axis=-1), x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_host(name: str) -> None:
    g = ad.Builder(name)
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 64))
    g.output("y", PROGRAMS[name](g, x))
    model = ad.compile(g, devices={"accel": "cuda:0"}, placement={"*": "accel"})
    alone = ad.compile(g)
    for rows in SIZES:
        given = numpy.random.default_rng(rows).normal(size=(rows, 64)).astype(numpy.float32) / 8
        # float32 sums of up to 4096 terms, in another order
        numpy.testing.assert_allclose(model(x=given)["y"], alone(x=given)["y"], 1e-4, 1e-5)

"""Promise: programs with branches, loops and found sizes may have several placements by size."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import anydim as ad
from anydim.compiler.frontends.builder import Builder, Value
from anydim.compiler.passes.assign_devices import Place
from anydim.compiler.passes.device_placement.min_cut_choice import Device
from anydim.compiler.passes.device_placement.speeds import CLASSES, Speed
from anydim.compiler.passes.device_placement.timed import Timing
from anydim.compiler.passes.placement_choice import Choosing
from anydim.sizes import holds

HOST = Device("", Speed(1e-6, dict.fromkeys(CLASSES, 5e-11), 1e-10))
ACCEL = Device("accel", Speed(1e-6, dict.fromkeys(CLASSES, 1e-12), 1e-12, 1e-4, 1e-11))
SIZES = (0, 1, 7, 40, 64, 100, 255, 256)


def branched(g: Builder, x: Value) -> None:
    c = g.input("c", ad.boolean, ())
    g.output("y", g.branch(c, lambda b: b.neg(x), lambda b: b.matmul(x, b.transpose(x))))


def iterated(g: Builder, x: Value) -> None:
    g.output("y", g.loop(lambda b, t, state: b.tanh(state), x, trips=3))


def looked_for(g: Builder, x: Value) -> None:
    """Both a found dim's values and what does not know of it."""
    places = g.nonzero(g.reduce_max(x, axes=(1,)))
    g.output("places", g.neg(places))
    g.output("y", g.exp(x))


@pytest.mark.parametrize("made", [branched, iterated, looked_for])
def test_results_are_those_of_the_host(made: Callable[[Builder, Value], None]) -> None:
    g = Builder("regions")
    x = g.input("x", ad.float32, (g.dim("n", 0, 256), 32))
    w = g.constant(numpy.random.default_rng(0).normal(size=(32, 32)).astype(numpy.float32) / 6)
    for _ in range(4):
        x = g.relu(g.matmul(x, w))
    made(g, x)
    graph = g.graph()
    timing = Timing(lambda placed: pytest.fail("it is measured"), [], 1, 5.0)
    placed = Choosing(graph, Place((HOST, ACCEL)), timing).run().graph
    (node,) = placed.nodes
    assert node.region is not None
    held = {holds(node.region.condition, {"n": n}) for n in SIZES}
    assert held == {True, False}  # both are tried below
    model = ad.compile(placed, devices={"accel": "cpu:1"})
    assert {segment.device for segment in model.program.segments} == {"", "accel"}
    alone = ad.compile(graph)
    for n in (*SIZES, *reversed(SIZES)):
        given = {"x": numpy.random.default_rng(n).normal(size=(n, 32)).astype(numpy.float32)}
        given |= {"c": numpy.array(n % 2 == 0)} if made is branched else {}
        came, expected = model(**given), alone(**given)
        for name, value in expected.items():
            numpy.testing.assert_array_equal(came[name], value, strict=True)

"""What is quantised again is counted in steps: no division, the same bytes but for ties."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import uint8
from anydim.compiler.frontends.builder import Value
from anydim.compiler.passes.integers import Integers
from anydim.compiler.passes.lower import Lower

RANDOM = numpy.random.default_rng(8)
STEP, ZERO = numpy.float32(0.37), numpy.uint8(31)


def real(g: ad.Builder, x: Value, scale: float) -> Value:
    return g.dequantize(x, g.constant(numpy.float32(scale)), g.constant(numpy.uint8(9)))


def small(g: ad.Builder, value: Value) -> Value:
    return g.quantize(value, g.constant(STEP), g.constant(ZERO), to=uint8)


def dense(g: ad.Builder) -> Value:
    fixed = numpy.random.default_rng(2)
    x = real(g, g.input("x", uint8, (g.dim("n", 0, 40), 12)), 0.02)
    w = g.constant(fixed.integers(-127, 128, (12, 7), dtype=numpy.int8))
    scales = g.constant(fixed.uniform(0.01, 0.1, 7).astype(numpy.float32))
    y = g.matmul(x, g.dequantize(w, scales, axis=1))
    y = y + g.constant(fixed.standard_normal(7).astype(numpy.float32))
    return g.maximum(y, g.constant(numpy.float32(0)))


def total(g: ad.Builder) -> Value:
    n = g.dim("n", 0, 40)
    parts = [
        real(g, g.input(name, uint8, (n, 5)), scale) for name, scale in (("x", 0.1), ("y", 0.3))
    ]
    return parts[0] - parts[1]


def read_twice(g: ad.Builder) -> Value:
    y = dense(g)
    g.output("also", y)
    return y


def of_floats(g: ad.Builder) -> Value:
    return g.input("x", ad.float32, (g.dim("n", 0, 40), 5)) * 0.3


CASES = {"dense": (dense, True), "sum": (total, False), "read twice": (read_twice, False),
         "floats": (of_floats, False)}  # fmt: skip


WIDTHS = {dense: 12, read_twice: 12, total: 5, of_floats: 5}


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_the_quotient(name: str) -> None:
    build, counted = CASES[name]
    g = ad.Builder("steps")
    g.output("bytes", small(g, build(g)))
    graph = Integers().run(Lower().run(g.graph()))
    left = any("quotient" in str(s.body) and "round" in str(s.body)
               for node in graph.nodes for s in node.group.statements)  # fmt: skip
    assert left != counted
    plain = ad.Builder("plain")
    plain.output("number", build(plain))  # its constants are the same
    models = [ad.compile(made, threads=1) for made in (g, plain)]
    for n in (0, 1, 15, 17):
        feeds = {name: RANDOM.integers(0, 256, (n, WIDTHS[build]), dtype=numpy.uint8)
                 for name in ("x", "y")[: 1 + (build is total)]}  # fmt: skip
        if build is of_floats:
            feeds = {"x": RANDOM.standard_normal((n, 5)).astype(numpy.float32)}
        exact = models[1](**feeds)["number"].astype(float) / float(STEP) + float(ZERO)
        found = models[0](**feeds)["bytes"]
        assert numpy.abs(found - numpy.clip(exact, 0, 255)).max(initial=0) <= 0.5001

"""Promise: libraries that are begun early are called by the kernels of the program."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.frontends.table import read
from anydim.compiler.passes.accumulate import Accumulate
from anydim.compiler.passes.early_libraries import libraries_ahead
from anydim.compiler.passes.lower import Lower
from anydim.compiler.targets.targets import target


def built(kind: str) -> ad.Builder:
    g = ad.Builder("g")
    n = g.dim("n", 0, 64)
    if kind == "convolutions":
        y = g.input("x", ad.float32, (n, 16, n, n))
        for _ in range(3):
            y = g.relu(g.conv(y, numpy.ones((16, 16, 1, 5), numpy.float32)))
        g.output("y", y)
    elif kind == "products":
        x = g.input("x", ad.float32, (n, 16))
        g.output("y", g.matmul(g.tanh(g.matmul(x, numpy.ones((16, 16), "f4"))), g.constant(
            numpy.ones((16, 48), numpy.float32))))  # fmt: skip
    else:
        g.output("y", g.softmax(g.input("x", ad.float32, (n, 16))))
    return g


@pytest.mark.parametrize("kind", ["convolutions", "products", "none"])
def test_libraries_ahead(kind: str) -> None:
    code, source = target("llvm"), built(kind)
    graph = Accumulate().run(Lower().run(read(source, None, None)))
    early = {library.name for library in libraries_ahead(graph, code.machine, code.templates)}
    kernels = ad.compile(built(kind)).report.kernels.values()
    called = {library.name for kernel in kernels for library in kernel.libraries}
    assert early == (called if kind == "products" else set())  # layouts of images come later
    assert bool(called) == (kind != "none")


def test_libraries_of_rounded_products() -> None:
    """Those of bfloat16 with that precision, where the machine has them, and no others."""
    g = ad.Builder("g")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 32))
    g.output("y", g.relu(g.matmul(x, numpy.ones((32, 48), numpy.float32))))
    code = target("llvm")
    graph = Accumulate().run(Lower().run(read(g, None, None)))
    given = graph, code.machine, code.templates, "bfloat16"
    early = {library.name for library in libraries_ahead(*given)}
    kernels = ad.compile(g, precision="bfloat16").report.kernels.values()
    assert early == {library.name for kernel in kernels for library in kernel.libraries}
    assert all(name.startswith("pairs_") == code.machine.pairs for name in early)

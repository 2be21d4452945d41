"""Graphs that once came out wrong, each as small as it could be made.

Promise: compiled, each gives what its graph means at every size, one after another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import anydim as ad
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph

SIZES = (0, 1, 2, 3, 7, 16, 17)


def start_of_a_fresh_value() -> Graph:
    """A part from the start looks like a permutation, and is shorter than its source."""
    g = ad.Builder("start_of_a_fresh_value")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n, n, 33))
    first, _ = g.split(x * x, axis=1, sizes=(n // 2, n - n // 2))
    g.output("y", first)
    return g.graph()


def nothing_left() -> Graph:
    """Loops of constant size 0, pointwise and in a reduction."""
    g = ad.Builder("nothing_left")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n, 1))
    none = g.slice(x, starts=(1,), ends=(1,), axes=(1,))
    g.output("none", none * 2.0)
    g.output("total", g.reduce_sum(g.exp(none), axes=(1,)))
    g.output("top", g.reduce_max(none, axes=(0,)))
    return g.graph()


def size_that_no_proof_reaches() -> Graph:
    """A reshape to a size that is never negative, though nobody can tell."""
    g = ad.Builder("size_that_no_proof_reaches")
    n = g.dim("n", 1)
    x = g.input("x", ad.float32, (n, n))
    y = g.slice(x, starts=(0,), ends=(n - 1,), axes=(0,))
    y = g.slice(y, starts=(0,), ends=(7,), axes=(0,))
    kept = y.shape[0]
    _, rest = g.split(y, axis=0, sizes=(kept // 3, kept - kept // 3))
    g.output("y", g.reshape(rest, shape=(-1,)) * 2.0)
    return g.graph()


def names_of_other_values() -> Graph:
    """Results named as passes name values of their own."""
    g = ad.Builder("names_of_other_values")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n, 1, 5))
    y = g.softmax(x, axis=2)
    g.output("y", y)
    for tail in ("squeezed", "top", "total", "e"):
        g.output(f"{y.name}/{tail}", g.exp(x))
        g.output(f"y/{tail}", g.sqrt(g.exp(x)))
    return g.graph()


def border_of_a_number() -> Graph:
    """A constant of one element is a number, but not where it is read outside."""
    g = ad.Builder("border_of_a_number")
    x = g.input("x", ad.float32, (g.dim("n"), 4))
    number = g.constant(numpy.array([5.0], numpy.float32))
    g.output("y", x + g.pad(number, before=(2,), after=(1,)))
    return g.graph()


def number_that_is_a_size() -> Graph:
    """A number without axes that reads no tensor is no constant where it is a size."""
    g = ad.Builder("number_that_is_a_size")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n, 3))
    g.output("y", x * g.sqrt(g.cast(g.size_tensor(values=(n,), scalar=True), to=ad.float32)))
    return g.graph()


def result_twice() -> Graph:
    """Matrix products and convolutions that are two results each."""
    g = ad.Builder("result_twice")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n, 16))
    image = g.input("image", ad.float32, (2, 3, n, 5))
    weights = numpy.linspace(-1, 1, 4 * 3 * 9, dtype=numpy.float32).reshape(4, 3, 3, 3)
    product = x @ g.transpose(x, perm=(1, 0))
    windows = g.conv(image, g.constant(weights), pads=(1, 1, 1, 1))
    for name, value in (("product", product), ("windows", windows)):
        g.output(f"{name}_a", value)
        g.output(f"{name}_b", g.identity(value))
        g.output(f"{name}_c", g.identity(value))
    return g.graph()


def long_chain() -> Graph:
    """More element work in a row than one kernel should take."""
    g = ad.Builder("long_chain")
    y = g.input("x", ad.float32, (g.dim("n"), 4))
    for _ in range(120):
        y = g.tanh(y) * 0.9 + 0.125
    g.output("y", y)
    return g.graph()


def sines_and_cosines_of_places() -> Graph:
    """Two products of one column by rows of constants, and functions of both: relative places."""
    g = ad.Builder("sines_and_cosines_of_places")
    x = g.input("x", ad.float32, (g.dim("n"), 1))
    column = x * -1.0
    rates = numpy.exp(numpy.arange(24, dtype="f4") / -4)
    g.output("sines", g.sin(column * g.constant(rates)))
    g.output("cosines", g.cos(column * g.constant(rates * 0.5)))
    return g.graph()


def pads_that_wrap() -> Graph:
    """Both ends of an axis are the same text, and begin at unlike places of a vector."""
    g = ad.Builder("pads_that_wrap")
    n = g.dim("n", 1, 40)
    for width in (3, 4, 8):
        x = g.input(f"x{width}", ad.float32, (n, width))
        for before, after in ((1, 2), (width, 1), (2, width)):
            padded = g.pad(x, before=(0, before), after=(0, after), mode="wrap")
            g.output(f"y{width}_{before}_{after}", padded)
    return g.graph()


def windows_that_leave_rows_and_a_known_column() -> Graph:
    """One channel of one column: two questions, of which neither moves with the channels."""
    g = ad.Builder("windows_that_leave_rows_and_a_known_column")
    x = g.input("x", ad.float32, (g.dim("n", 16, 16), 8, g.dim("t", 0, 200), 3))
    weights = numpy.random.default_rng(0).random((1, 8, 3, 3)).astype("f")
    g.output("y", g.conv(x, g.constant(weights), strides=(1, 3), pads=(0, 1, 2, 1)))
    return g.graph()


def product_of_no_rows_that_are_looked_up() -> Graph:
    """A reduction without an element."""
    g = ad.Builder("product_of_no_rows_that_are_looked_up")
    x = g.input("x", ad.int64, (g.dim("n", 1, 40), 0))
    places = g.constant(numpy.zeros((2, 0), numpy.int64))
    g.output("y", g.reduce_prod(g.gather_elements(x, places, axis=0), axes=(1,), keepdims=True))
    return g.graph()


GRAPHS: tuple[Callable[[], Graph], ...] = (
    start_of_a_fresh_value, nothing_left, size_that_no_proof_reaches,
    names_of_other_values, border_of_a_number, number_that_is_a_size, result_twice,
    long_chain, sines_and_cosines_of_places, pads_that_wrap,
    windows_that_leave_rows_and_a_known_column, product_of_no_rows_that_are_looked_up,
)  # fmt: skip


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_it_is_right_at_every_size(make: Callable[[], Graph]) -> None:
    graph = make()
    model = ad.compile(graph)
    for size in (*SIZES, *reversed(SIZES)):
        numbers = numpy.random.default_rng(size)
        sizes = {d.name: d.lo if d.lo == d.hi else size for d in graph.box.dims}
        sizes = {dim.name: sizes[dim.name] for dim in graph.box.dims if sizes[dim.name] in dim}
        if len(sizes) < len(graph.box.dims):
            continue
        inputs = {
            name: numbers.standard_normal([s.evaluate(sizes) for s in graph.types[name].shape])
            .astype(graph.types[name].dtype.numpy)
            for name in graph.inputs
        }  # fmt: skip
        came, wanted = model(**inputs), evaluate(graph, inputs)
        for name in graph.outputs:
            assert came[name].shape == wanted[name].shape
            numpy.testing.assert_allclose(came[name], wanted[name], 2e-5, 2e-5)

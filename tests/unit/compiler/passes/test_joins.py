"""Promise: a concatenation that is part of a larger one takes no bytes; no result changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
import pytest

import anydim as ad
from anydim.compiler.frontends.graph_builder import Value

Values = Mapping[str, Value]
SIZES = ((0, 0, 0), (1, 0, 12), (0, 1, 0), (128, 32, 12), (5, 1, 7))
REST = (4, 2, 3)


def published(g: ad.Builder, x: Value, y: Value, a: Value, b: Value) -> Values:
    return {"out": g.concat(g.concat(x, y, axis=0), g.concat(a, b, axis=0), axis=0)}


def read_by_others(g: ad.Builder, x: Value, y: Value, a: Value, b: Value) -> Values:
    z, c = g.concat(x, y, axis=0), g.concat(a, b, axis=0)
    return {"out": g.concat(z, c, axis=0), "top": g.softmax(z, axis=3), "sum": g.reduce_sum(c)}


def needed_before(g: ad.Builder, x: Value, y: Value, a: Value, b: Value) -> Values:
    """The whole is made of what reads a part; a part is a result; a part comes twice."""
    z, c = g.concat(x, y, axis=0), g.concat(a, b, axis=0)
    out = g.concat(z, g.softmax(z, axis=3), axis=0)
    return {"out": out, "c": c, "twice": g.concat(c, x, c, axis=0)}


def levels(g: ad.Builder, x: Value, y: Value, a: Value, b: Value) -> Values:
    z = g.concat(g.concat(g.concat(x, y, axis=0), a, axis=0), b, axis=0)
    crossed = g.concat(g.concat(a, a, axis=1), g.concat(a, a, axis=1), axis=3)
    rows = g.concat(g.concat(x, x, axis=3), g.concat(x, x, axis=3), x, axis=3)
    return {"out": z, "crossed": crossed, "rows": rows}


MAKERS = (published, read_by_others, needed_before, levels)
KEPT = {published: 0, read_by_others: 0, levels: 2}  # values in the arena


def graph(make: Callable[..., Values]) -> ad.Builder:
    g = ad.Builder("joined")
    first = (g.dim("n1", 0, 128), g.dim("n2", 0, 32), g.dim("n3", 0, 12), 27)
    given = [g.input(name, ad.float32, (n, *REST)) for name, n in zip("xyab", first)]
    for name, value in make(g, *given).items():
        g.output(name, value)
    return g


@pytest.mark.parametrize("make", MAKERS)
def test_results_are_right_and_parts_take_no_bytes(make: Callable[..., Values]) -> None:
    model = ad.compile(graph(make))
    held = [b for b in model.program.segments[0].buffers if b.kind == "arena"]
    assert len(held) == KEPT.get(make, len(held)), held
    for sizes in SIZES:
        random = numpy.random.default_rng(sum(sizes))
        rows = dict(zip("xyab", (*sizes, 27)))
        inputs = {k: random.standard_normal((n, *REST), numpy.float32) for k, n in rows.items()}
        found, wanted = model(**inputs), model._compiled.reference(inputs)
        for name, value in wanted.items():
            assert found[name].shape == value.shape
            numpy.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_published_example_has_the_bytes_of_its_arguments_and_result() -> None:
    segment = ad.compile(graph(published)).program.segments[0]
    most = {"n1": 128, "n2": 32, "n3": 12}
    found = {buffer.name: buffer.bytes.evaluate(most) for buffer in segment.buffers}
    assert found == {"x": 12288, "y": 3072, "a": 1152, "b": 2592, "out": 19104}
    assert segment.total_bytes == 0

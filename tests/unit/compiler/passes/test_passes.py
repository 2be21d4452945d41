"""Promise: no pass changes what a graph computes, and each leaves what it says it leaves."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes.fuse import Fuse
from anydim.compiler.passes.options import PLAIN
from anydim.compiler.passes.schedule import Alias, Schedule, Scheduled
from anydim.compiler.pipeline import PASSES
from tests.unit.compiler.passes.graphs import GRAPHS, draw, some_sizes

MACHINE = Machine(vector_bytes=32, registers=16)
TOLERANCE = 2e-5  # float32 sums of at most a few dozen terms near 1, in another order


def after(graph: Graph, last: str) -> Graph:
    for entry in PASSES:
        graph = entry.make(MACHINE, TEMPLATES, PLAIN).run(graph)
        if entry.name == last:
            break
    return graph


def launches(graph: Graph) -> list[Scheduled]:
    items = Schedule(MACHINE, TEMPLATES).run(after(graph, "fuse"))
    return [item for item in items if isinstance(item, Scheduled)]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("last", [entry.name for entry in PASSES])
def test_a_pass_keeps_the_meaning(name: str, last: str) -> None:
    graph = GRAPHS[name]()
    changed = verify(after(graph, last))
    for sizes in some_sizes(graph):
        inputs = draw(graph, sizes)
        wanted, came = evaluate(graph, inputs), evaluate(changed, inputs)
        for output in graph.outputs:
            assert wanted[output].shape == came[output].shape
            numpy.testing.assert_allclose(came[output], wanted[output], TOLERANCE, TOLERANCE)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_compiled_graph_agrees_along_a_sequence_of_sizes(name: str) -> None:
    graph = GRAPHS[name]()
    model = ad.compile(graph)
    points = some_sizes(graph)
    for sizes in [*points, *reversed(points)]:
        inputs = draw(graph, sizes)
        wanted, came = evaluate(graph, inputs), model(**inputs)
        for output in graph.outputs:
            assert wanted[output].shape == came[output].shape
            numpy.testing.assert_allclose(came[output], wanted[output], TOLERANCE, TOLERANCE)


EXPECTED_LAUNCHES = {
    "pointwise_chain": ["pointwise"],
    "dense_gelu": ["contraction"],
    "residual_norm": ["contraction", "rows"],
    "written_out_norm": ["rows"],
    "attention": ["contraction", "contraction", "contraction", "attention"],
    "keepdims_outputs": ["rows"],
}


@pytest.mark.parametrize("name", EXPECTED_LAUNCHES)
def test_fusion_makes_these_kernels(name: str) -> None:
    assert [item.template for item in launches(GRAPHS[name]())] == EXPECTED_LAUNCHES[name]


def test_equal_layers_share_one_kernel() -> None:
    g = ad.Builder("layers")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 16))
    for seed in range(4):
        w = g.constant(numpy.random.default_rng(seed).standard_normal((16, 16), numpy.float32))
        x = g.relu(g.matmul(x, w))
    g.output("y", x)
    made = launches(g.graph())
    assert len(made) == 4
    assert len({item.launch.kernel.name for item in made}) == 1


def test_a_value_that_is_read_in_parts_is_not_written() -> None:
    assert len(launches(GRAPHS["gates"]())) == 1


def test_equal_statements_are_computed_once() -> None:
    lowered = after(GRAPHS["two_consumers"](), "simplify")
    bodies = [s.body for node in lowered.nodes for s in node.group.statements]
    assert sum(getattr(body, "function", "") == "exp" for body in bodies) == 1


def test_a_reshape_of_a_fresh_value_is_only_a_name() -> None:
    items = Schedule(MACHINE, TEMPLATES).run(after(GRAPHS["views"](), "fuse"))
    assert any(isinstance(item, Alias) and item.target == "z" for item in items)


def test_the_score_matrix_of_attention_is_never_an_output() -> None:
    fused = after(GRAPHS["attention"](), "fuse")
    shapes = [fused.types[name].shape for node in fused.nodes for name in node.outputs]
    seq = fused.box.dim("seq").size
    assert not any(sum(size == seq for size in shape) > 1 for shape in shapes)


def test_an_output_that_is_an_input_is_a_copy() -> None:
    g = ad.Builder("identity")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), 3))
    g.output("y", x)
    model = ad.compile(g.graph())
    array = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)
    came = model(x=array)["y"]
    numpy.testing.assert_array_equal(came, array)
    assert not numpy.shares_memory(came, array)


def test_a_reshape_to_the_own_shape_is_no_view_of_its_own() -> None:
    """Exporters write them around attention; the transposition behind it is then the product's."""
    g = ad.Builder("g")
    b, s = g.dim("b", 0, 8), g.dim("s", 0, 8)
    scores, values = (g.input(n, ad.float32, shape) for n, shape in (
        ("scores", (b, 3, s, s)), ("values", (b, 3, s, 4)),
    ))  # fmt: skip
    mixed = g.reshape(g.matmul(scores, values), shape=(b, -1, s, 4))
    g.output("y", g.reshape(g.transpose(mixed, perm=(0, 2, 1, 3)), shape=(b, s, 12)) + 1.0)
    model = ad.compile(g)
    assert len(model.report.chosen) == 2
    for size in (0, 1, 5):
        x = numpy.ones((2, 3, size, size), numpy.float32)
        v = numpy.arange(2 * 3 * size * 4, dtype=numpy.float32).reshape(2, 3, size, 4)
        right = (x @ v).transpose(0, 2, 1, 3).reshape(2, size, 12) + 1
        numpy.testing.assert_allclose(model(scores=x, values=v)["y"], right, rtol=1e-6)


def test_reductions_of_the_same_elements_are_one_kernel() -> None:
    g = ad.Builder("g")
    x = g.input("x", ad.float32, [g.dim("n"), g.dim("m")])
    for name in ("reduce_min", "reduce_max", "reduce_sum"):
        g.output(name, getattr(g, name)(x, axes=(1,)))
    g.output("others", g.reduce_sum(x, axes=(0,)))
    groups = [node.outputs for node in after(g.graph(), "fuse").nodes]
    assert [len(group) for group in groups] == [3, 1]


def test_fusion_drops_what_nothing_reads() -> None:
    g = ad.Builder("dead")
    x = g.input("x", ad.float32, (g.dim("n", 0, 8), 4))
    g.output("y", g.relu(x))
    g.output("z", g.concat(x, x, axis=0))
    before = after(g.graph(), "split_reduction").replace(outputs=("y",))
    made = Fuse(MACHINE, TEMPLATES).run(before)
    assert [node.outputs for node in made.nodes] == [("y",)]
    assert [item.template for item in Schedule(MACHINE, TEMPLATES).run(made)] == ["pointwise"]


def test_no_statement_takes_a_convolution_from_its_template() -> None:
    """An addend in another layout has no epilogue, and `rows` takes eight times as long."""
    g = ad.Builder("positions")
    x = g.input("x", ad.float32, (g.dim("n", 1, 8), g.dim("t", 1, 512), 64))
    window = g.constant(numpy.ones((64, 16, 32), numpy.float32))
    y = g.conv(g.transpose(x, perm=(0, 2, 1)), window, pads=(16, 15), groups=4)
    g.output("y", g.add(x, g.transpose(g.relu(y), perm=(0, 2, 1))))
    names = [item.template for item in launches(g.graph())]
    assert "convolution" in names and "rows" not in names

"""Promise: a graph is cut where it has to be, and nowhere else; values keep their meaning."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import CALL, LOOP, SIZES, CallRegion, LoopRegion, Sizes
from anydim.compiler.passes.assemble import Store
from anydim.compiler.passes.copy_elimination import without_copies
from anydim.compiler.passes.link import Link, Linked
from anydim.compiler.passes.segment import Cut, NestingNode, Part, Segment, straight
from anydim.runtime.program import segment as records
from anydim.runtime.program.region import ReleaseStep
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.graph.region_graphs import kind, node, region
from tests.unit.compiler.passes.graphs import GRAPHS

N, K = Dim("n", 0, 9), Dim("k", 0, 9)
ROW, FOUND = kind(float32, "n"), kind(float32, "k")


def cut(graph: Graph) -> tuple[Cut, ...]:
    return Segment(lambda one: one).run(graph)


def shape(cuts: tuple[Cut, ...]) -> list[str]:
    """The steps of the outermost graph: the values that each part makes, or the node."""
    return [
        " ".join(sorted(name for node in step.graph.nodes for name in node.outputs))
        if isinstance(step, Part) else step.node.operator
        for step in cuts[-1].steps
    ]  # fmt: skip


def found(*nodes: Node, outputs: tuple[str, ...] = ("z",)) -> Graph:
    """A graph in which k is the number `count`."""
    types = dict.fromkeys(("x", "a", "b", "c"), ROW) | {"count": kind(int64)}
    types |= dict.fromkeys(("y", "z", "v"), FOUND)
    box = Box.of(N, K, constraints=(as_size("n - k"),))
    return Graph("found", box, types, ("x", "count"), outputs, {}, nodes)


def first(inputs: str, outputs: str) -> Node:
    return node("slice", inputs, outputs, starts=(0,), ends=(as_size("k"),), axes=(0,))


FIND = region(SIZES, "count", "", Sizes(("k",)))


def test_a_graph_of_comprehensions_is_one_part() -> None:
    for make in GRAPHS.values():
        graph = make()
        cuts = cut(graph)
        assert straight(cuts)
        assert cuts[0].parts[0].graph.inputs == graph.inputs


def test_what_needs_a_found_dim_comes_after_it() -> None:
    graph = found(node("neg", "x", "a"), FIND, first("a", "y"), node("exp", "y", "z"))
    assert shape(cut(graph)) == ["sizes", "a y z"]


def test_what_nobody_needs_before_waits_for_its_reader() -> None:
    """'a' could run before the sizes are known; behind them it fuses with what reads it."""
    graph = found(
        node("neg", "x", "a"), FIND, first("a", "y"), node("add", "y y", "z"),
    )  # fmt: skip
    assert shape(cut(graph)) == ["sizes", "a y z"]


def test_what_data_decides_is_computed_first() -> None:
    types = {"x": ROW, "m": kind(float32), "count": kind(int64), "z": FOUND}
    nodes = (
        node("reduce_max", "x", "m", axes=(0,), keepdims=False),
        node("cast", "m", "count", to="int64"), FIND, first("x", "z"),
    )  # fmt: skip
    graph = Graph("computed", Box.of(N, K), types, ("x",), ("z",), {}, nodes)
    assert shape(cut(graph)) == ["count m", "sizes", "z"]


def test_a_found_dim_in_a_result_alone_is_waited_for() -> None:
    """Nothing that goes into 'z' speaks of k; its own shape does."""
    graph = found(FIND, node("reduce_sum", "x", "s", axes=(0,), keepdims=False),
                  node("expand", "s", "z", shape=(as_size("k"),)))  # fmt: skip
    graph = graph.replace(types={**graph.types, "s": kind(float32)})
    assert shape(cut(graph)) == ["sizes", "s z"]


def test_held_graphs_that_differ_in_names_are_one() -> None:
    def body(operator: str, given: str) -> Graph:
        return Graph("f", Box.of(Dim("f.n", 0)), {given: kind(float32, "f.n"),
                     "o": kind(float32, "f.n")}, (given,), ("o",), {},
                     (node(operator, given, "o"),))  # fmt: skip

    nodes = [region(CALL, i, o, CallRegion(body(f, i))) for i, o, f in
             (("x", "a", "neg"), ("a", "b", "neg"), ("b", "c", "exp"))]  # fmt: skip
    graph = Graph("calls", Box.of(N), dict.fromkeys("xabc", ROW), ("x",), ("c",), {},
                  tuple(nodes))  # fmt: skip
    cuts = cut(graph)
    assert len(cuts) == 3
    steps = cuts[-1].steps
    assert [step.regions for step in steps if isinstance(step, NestingNode)] == [(0,), (0,), (1,)]


def test_a_dim_of_a_grandparent_is_passed_down() -> None:
    """The innermost graph speaks of n, the one around it does not; its own value tells nothing."""
    one = kind(float32)
    inner = Graph("inner", Box.of(N), {"s": one, "r": ROW, "o": one}, ("s",), ("o",), {},
                  (node("expand", "s", "r", shape=(as_size("n"),)),
                   node("reduce_sum", "r", "o", axes=(0,), keepdims=False)))  # fmt: skip
    middle = Graph("middle", Box(), {"s": one, "o": one}, ("s",), ("o",), {},
                   (region(CALL, "s", "o", CallRegion(inner)),))  # fmt: skip
    graph = Graph("outer", Box.of(N), {"x": ROW, "s": one, "o": one}, ("x", "s"), ("o",), {},
                  (region(CALL, "s", "o", CallRegion(middle)),))  # fmt: skip
    assert [sorted(each.given) for each in cut(graph)] == [["n"], ["n"], []]
    model = ad.compile(graph)
    for n in (0, 1, 5):
        assert model(x=np.zeros(n, np.float32), s=np.float32(3))["o"] == 3 * n


def test_copies_between_steps_go() -> None:
    """Inside a held graph wherever they are; outermost, outputs keep their names."""
    body = Graph(
        "body",
        Box.of(N),
        dict.fromkeys("abcd", ROW),
        ("a",),
        ("c", "d"),
        {},
        (node("identity", "a", "b"), node("identity", "b", "c"), node("neg", "b", "d")),
    )
    plain = without_copies(body, outermost=False)
    assert plain.outputs == ("a", "d")
    assert [n.operator for n in plain.nodes] == ["neg"] and plain.nodes[0].inputs == ("a",)
    own = without_copies(body, outermost=True)
    assert own.outputs == ("c", "d")
    assert [(n.operator, n.inputs) for n in own.nodes] == [("identity", ("a",)), ("neg", ("a",))]


def test_an_output_that_copies_a_result_is_made_under_its_name() -> None:
    body = Graph("body", Box.of(N), dict.fromkeys("ab", ROW), ("a",), ("b",), {},
                 (node("neg", "a", "b"),))  # fmt: skip
    body = body.replace(box=body.box.also(Dim("t", 0, 3)))
    loop = LoopRegion(body, "t", as_size(3), False, 1)
    graph = Graph("g", Box.of(N), dict.fromkeys(("x", "r", "y", "w"), ROW), ("x",), ("y", "w"),
                  {}, (region(LOOP, "x", "r", loop), node("identity", "r", "y"),
                       node("identity", "r", "w")))  # fmt: skip
    copied = without_copies(graph, outermost=True)
    assert [(n.operator, n.outputs) for n in copied.nodes] == [(LOOP, ("y",)), ("identity", ("w",))]
    model = ad.compile(graph)
    x = np.arange(4, dtype=np.float32)
    for name in ("y", "w"):
        np.testing.assert_array_equal(model(x=x)[name], -x)


def test_values_are_released_behind_their_last_reader() -> None:
    graph = found(node("neg", "x", "a"), region(CALL, "a", "b", CallRegion(_negation())), FIND,
                  first("b", "z"))  # fmt: skip
    cuts = cut(graph)
    parts = {id(part): Linked(_segment(part.graph), ()) for each in cuts for part in each.parts}
    program = Link(Store()).run(cuts, parts)
    main = program.regions[-1]
    released = [(number, step.reads) for number, step in enumerate(main.steps)
                if isinstance(step, ReleaseStep)]  # fmt: skip
    readers = {name: number for number, step in enumerate(main.steps) for name in step.reads
               if not isinstance(step, ReleaseStep)}  # fmt: skip
    assert {name for _, names in released for name in names} == {"a", "b"}
    for number, names in released:
        assert all(readers[name] == number - 1 for name in names)


def _negation() -> Graph:
    return Graph("f", Box.of(N), {"i": ROW, "o": ROW}, ("i",), ("o",), {}, (node("neg", "i", "o"),))


def _segment(graph: Graph) -> records.Segment:
    """A segment that does nothing, with the signature of a graph."""
    inputs, outputs = (
        tuple(TensorSpec(name, graph.types[name].dtype, graph.types[name].shape) for name in names)
        for names in (graph.inputs, graph.outputs)
    )
    nothing = as_size(0)
    signature = Signature(graph.name, graph.box, inputs, outputs)
    return records.Segment(signature, (), (), (), nothing, nothing)


def test_a_found_dim_that_a_held_graph_speaks_of_is_found_before() -> None:
    """The constraint that binds it is checked where the held graph begins, at every call."""
    g = ad.Builder("held")
    x, flag = g.input("x", float32, (g.dim("n"), 4)), g.input("flag", boolean, ())
    g.output("places", g.nonzero(g.top_k(x, k=2, axis=1)[1]))
    g.output("y", g.branch(flag, lambda b: b.neg(x), lambda b: b.exp(x)))
    graph = g.graph()
    order = shape(cut(graph))
    assert order.index("sizes") < order.index("branch")
    model = ad.compile(graph)
    for n in (7, 0, 3):
        made = model(x=np.ones((n, 4), np.float32), flag=np.array(True))
        np.testing.assert_array_equal(made["y"], -np.ones((n, 4), np.float32))


@pytest.mark.parametrize("first", ["loop", "dim"])
@pytest.mark.parametrize("loop", ["lstm", "loop"])
def test_loops_beside_dims_that_data_decides(loop: str, first: str) -> None:
    """The constraint of a dim that is found later is not one of a loop's body."""
    g = ad.Builder("beside")
    n = g.dim("n", 0, 9)
    x, z = g.input("x", float32, (n,)), g.input("z", float32, (n, 2, 4))
    weights = [g.constant(np.full(shape, 0.5, np.float32)) for shape in ((1, 4, 4), (1, 4, 1))]
    sigmoid, tanh = ("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)

    def made(part: str) -> ad.Value:
        if part == "dim":
            return g.nonzero(x)
        if loop == "loop":
            return g.loop(lambda b, t, y: y * 2, g.reduce_sum(z), trips=n)
        return g.lstm(z, *weights, direction=0, reverse=False, given=(),
                      activations=(sigmoid, tanh, tanh))[2]  # fmt: skip

    for part in ("loop", "dim") if first == "loop" else ("dim", "loop"):
        g.output(part, made(part))
    model = ad.compile(g)
    for size in (0, 1, 5, 9):
        values = (np.arange(size) % 3).astype(np.float32)
        came = model(x=values, z=np.ones((size, 2, 4), np.float32))
        np.testing.assert_array_equal(came["dim"], np.array(np.nonzero(values)))
        if loop == "loop":
            assert came["loop"] == 8 * size * 2**size

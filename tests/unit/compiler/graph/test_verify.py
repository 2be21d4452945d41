"""Promise: what no pass may rely on is refused in a text that names the node; the rest passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anydim.base.dtypes import boolean, float32, float64, int32, int64
from anydim.base.errors import GraphError
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.regions import (
    BRANCH,
    CALL,
    FOREIGN,
    LOOP,
    SIZES,
    BranchRegion,
    CallRegion,
    Foreign,
    LoopRegion,
    Scan,
    Sizes,
)
from anydim.compiler.graph.verify import verify
from anydim.lang.tree import Axis, Group, Index, Read, Statement, Tensor, TensorType
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.compiler.graph.region_graphs import called, chosen, kind, node, region

N, M = Dim("n", 0, 9), Dim("m", 0, 9)
BOX = Box.of(N, M)
Types = dict[str, TensorType]


def graph_of(types: Types, inputs: str, outputs: str, *nodes: Node, box: Box = BOX) -> Graph:
    return Graph("g", box, types, tuple(inputs.split()), tuple(outputs.split()), {}, nodes)


def refusal(graph: Graph) -> str:
    """What is wrong with a graph, without the graph's name."""
    with pytest.raises(GraphError) as caught:
        verify(graph)
    return str(caught.value).removeprefix(f"graph '{graph.name}'").removeprefix(", ")


# ---- values without a type ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [("x", ": value 'x' has no type"), ("v", "node 'v' (call): value 'v' has no type")],
)
def test_a_value_has_a_type(name: str, text: str) -> None:
    graph = called().graph
    kept = {each: type for each, type in graph.types.items() if each != name}
    assert refusal(graph.replace(types=kept)) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"types": {"b": kind(float32, "f.k")}}, "graph 'double': value 'a' has no type"),
        (
            {"types": {"a": kind(float32, "f.k")}},
            "graph 'double', node 'b' (add): value 'b' has no type",
        ),
        ({"outputs": ("c",)}, "graph 'double': output 'c' is not defined"),
    ],
)
def test_so_has_a_value_of_a_held_graph(changes: dict[str, Any], text: str) -> None:
    graph = called().graph
    old = graph.nodes[0].attributes["region"].body
    body = Graph(**{name: getattr(old, name) for name in old.__dataclass_fields__} | changes)
    first = region(CALL, "x", "y", CallRegion(body))
    assert refusal(graph.replace(nodes=(first, graph.nodes[1]))) == text


# ---- dims that nodes find -----------------------------------------------------------------------

FOUND = Box.of(N, Dim("k", 0, 9))


def finding(*nodes: Node, **types: TensorType) -> Graph:
    given = {"x": kind(float32, "n"), "count": kind(int64), **types}
    return graph_of(given, "x count", "y", *nodes, box=FOUND)


def test_a_value_has_a_size_that_is_known() -> None:
    found = region(SIZES, "count", "", Sizes(("k",)))
    made = node("exp", "x", "y")
    verify(finding(found, made, y=kind(float32, "k")))
    assert refusal(finding(found, made, y=kind(float32, "q"))) == (
        "node 'y' (exp): makes a size of the dim 'q', which is not known before it"
    )
    text = "node 'count' (sizes): finds the dim 'k', which is known already"
    assert refusal(finding(made, found, y=kind(float32, "k"))) == text


@pytest.mark.parametrize(
    ("dims", "problem"),
    [
        (("n",), "finds the dim 'n', which is known already"),
        (("q",), "finds the dim 'q', which is not a dim of the graph"),
    ],
)
def test_a_dim_is_found_once_and_is_one_of_the_graph(dims: tuple[str, ...], problem: str) -> None:
    found = region(SIZES, "count", "", Sizes(dims))
    graph = finding(found, node("exp", "x", "y"), y=kind(float32, "n"))
    assert refusal(graph) == f"node 'count' (sizes): {problem}"


@pytest.mark.parametrize(
    ("dims", "count", "made", "good"),
    [
        ("k", kind(int64), "", True),
        ("k", kind(int64, 1), "", True),
        ("k", kind(int64, 2), "", False),
        ("k", kind(int32), "", False),
        ("k", kind(int64), "z", False),
        ("k l", kind(int64, 2), "", True),
        ("k l", kind(int64), "", False),
        ("k l", kind(int64, 1), "", False),
        ("k l", kind(float32, 2), "", False),
    ],
)
def test_sizes_come_as_one_int64_each(dims: str, count: TensorType, made: str, good: bool) -> None:
    names = tuple(dims.split())
    found = Node(SIZES, ("count",), tuple(made.split()), {"region": Sizes(names)}, "found")
    types = {"count": count, "z": kind(int64)}
    graph = graph_of(types, "count", "count", found, box=Box.of(Dim("k"), Dim("l")))
    if good:
        verify(graph)
    else:
        text = f"node 'found' (sizes): takes int64[{len(names)}] and has no results"
        assert refusal(graph) == text


def test_sizes_have_one_input() -> None:
    found = Node(SIZES, ("count", "count"), (), {"region": Sizes(("k",))}, "found")
    graph = graph_of({"count": kind(int64)}, "count", "count", found, box=Box.of(Dim("k")))
    assert refusal(graph) == "node 'found' (sizes): takes int64[1] and has no results"


# ---- groups -------------------------------------------------------------------------------------

ROW = kind(float32, "n")


def statement(target: str, read: str) -> Statement:
    return Statement(target, (Axis("i", as_size("n")),), Read(read, (Index("i"),)))


def fused(group: Group, inputs: str = "x", outputs: str = "y", **types: TensorType) -> Graph:
    every = {"x": ROW, "y": ROW, **types}
    made = Node(FUSED, tuple(inputs.split()), tuple(outputs.split()), {"group": group}, "f")
    return graph_of(every, "x", "y", made)


COPY = Group((Tensor("x", ROW),), (Tensor("y", ROW),), (statement("y", "x"),))
GROUPS = {
    "other inputs": (
        fused(replace(COPY, inputs=(Tensor("a", ROW),))), "its inputs differ from its group's"
    ),
    "other results": (
        fused(replace(COPY, outputs=(Tensor("z", ROW),))), "its results differ from its group's"
    ),
    "another input type": (
        fused(COPY, x=kind(float64, "n")), "reads 'x' as float32[n], but it is float64[n]"
    ),
    "another input rank": (
        fused(COPY, x=kind(float32, "n", "m")), "reads 'x' as float32[n], but it is float32[n, m]"
    ),
    "an input that is larger at all sizes": (
        fused(COPY, x=kind(float32, "m + 10")), "reads 'x' as float32[n], but it is float32[m + 10]"
    ),
    "another result type": (
        fused(COPY, y=kind(float64, "n")),
        "makes 'y' as float32[n], but it is declared float64[n]",
    ),
    "read before it is written": (
        fused(replace(COPY, statements=(statement("y", "t"), statement("t", "x")))),
        "statement of 'y' reads 't' early",
    ),
    "written twice": (
        fused(replace(COPY, statements=(statement("y", "x"), statement("y", "x")))),
        "writes 'y' twice",
    ),
    "an input is written": (
        fused(replace(COPY, statements=(statement("x", "x"), statement("y", "x")))),
        "writes 'x' twice",
    ),
    "never written": (
        fused(replace(COPY, statements=(statement("t", "x"),))), "no statement writes 'y'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_that_does_not_fit_its_node(name: str) -> None:
    graph, problem = GROUPS[name]
    assert refusal(graph) == f"node 'f' (fused): {problem}"


def test_a_size_of_a_group_that_may_be_equal_passes() -> None:
    verify(fused(COPY))
    verify(fused(COPY, x=kind(float32, "m"), y=kind(float32, "m")))
    verify(fused(replace(COPY, statements=(statement("t", "x"), statement("y", "t")))))


# ---- branches, calls, other engines -------------------------------------------------------------


def held(name: str, a: TensorType, b: TensorType, box: Box = BOX) -> Graph:
    """A graph that makes b of a: its own node says so whatever the types are."""
    foreign = Foreign("engine", b"", ("a",), ("b",))
    return Graph(
        name, box, {"a": a, "b": b}, ("a",), ("b",), {}, (region(FOREIGN, "a", "b", foreign),)
    )


def around(record: CallRegion | BranchRegion, made: TensorType = ROW, box: Box = BOX) -> Graph:
    """A graph with a node that holds graphs, which takes x[n] (and c) and makes y."""
    types = {"c": kind(boolean), "x": ROW, "w": kind(float32, "m"), "y": made}
    if isinstance(record, CallRegion):
        return graph_of(types, "x w", "y", region(CALL, "x", "y", record), box=box)
    inputs = "c x" if record.condition is None else "x"
    return graph_of(types, "c x w", "y", region(BRANCH, inputs, "y", record), box=box)


FITS = held("then", ROW, ROW)
WRONG = {
    "another type": kind(float64, "n"),
    "another rank": kind(float32, "n", "n"),
    "one more": kind(float32, "n + 1"),
    "larger at all sizes": kind(float32, "m + 10"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("how", ["call", "then", "otherwise", "by size"])
def test_a_held_graph_that_does_not_fit(how: str, wrong: TensorType) -> None:
    def made(inner: Graph) -> Graph:
        if how == "call":
            return around(CallRegion(inner))
        if how == "by size":
            condition = Guard(as_size("n"), "<", as_size("m"), "smaller")
            return around(BranchRegion(inner, FITS, condition))
        pair = (inner, FITS) if how == "then" else (FITS, inner)
        return around(BranchRegion(*pair))

    where = f"node 'y' ({'call' if how == 'call' else 'branch'}): "
    verify(made(FITS))
    verify(made(held("maybe", kind(float32, "m"), kind(float32, "m"))))
    text = refusal(made(held("inner", wrong, ROW)))
    assert text == f"{where}input 0 is float32[n] around it and {wrong} inside"
    text = refusal(made(held("inner", ROW, wrong)))
    assert text == f"{where}result 0 is float32[n] around it and {wrong} inside"


def test_all_dims_that_are_known_are_compared() -> None:
    """There is one dim, and both sizes are made of it."""
    own = Box.of(N)
    inner = held("inner", kind(float32, "n + 1"), ROW, own)
    graph = graph_of(
        {"x": ROW, "y": ROW}, "x", "y", region(CALL, "x", "y", CallRegion(inner)), box=own
    )
    text = "node 'y' (call): input 0 is float32[n] around it and float32[n + 1] inside"
    assert refusal(graph) == text


def test_a_dim_found_later_is_not_that_of_a_held_graph() -> None:
    """`s` is told by the input inside, and outside by what comes out."""
    inner = held("inner", kind(float32, "s"), kind(float32, "s"), Box.of(Dim("s", 0)))
    graph = around(CallRegion(inner), kind(float32, "s"), Box.of(N, M, Dim("s", 20, 30)))
    verify(graph)


def test_numbers_of_values() -> None:
    graph = around(CallRegion(FITS))
    two = graph.replace(nodes=(region(CALL, "x w", "y", CallRegion(FITS)),))
    assert refusal(two) == "node 'y' (call): 2 values around it and 1 inside as input"
    more = FITS.replace(outputs=("b", "a"))
    text = "node 'y' (call): 1 values around it and 2 inside as result"
    assert refusal(around(CallRegion(more))) == text


def test_a_branch_has_a_condition() -> None:
    graph = chosen().graph
    types = {**graph.types, "c": kind(boolean, 1)}
    text = "node 'y' (branch): its first input is bool[1], expected bool[]"
    assert refusal(graph.replace(types=types)) == text
    bare = graph.replace(nodes=(region(BRANCH, "", "y", graph.nodes[0].region), graph.nodes[1]))
    assert refusal(bare) == "node 'y' (branch): its first input is missing, expected bool[]"


@pytest.mark.parametrize(
    ("inputs", "outputs", "good"),
    [("a", "b", True), ("a c", "b", False), ("", "b", False), ("a", "b c", False)],
)
def test_a_model_of_another_engine(inputs: str, outputs: str, good: bool) -> None:
    record = Foreign("engine", b"", tuple(inputs.split()), tuple(outputs.split()))
    graph = graph_of({"x": ROW, "y": ROW}, "x", "y", region(FOREIGN, "x", "y", record))
    if good:
        verify(graph)
    else:
        text = "node 'y' (foreign): its model has other inputs or results than the node"
        assert refusal(graph) == text


# ---- loops --------------------------------------------------------------------------------------


def loop(
    trips: int | str | None = "m", start: str = "1", end: str = "m + 1", state: str = "t + 1",
    longer: str = "t + 2", conditional: bool = False, **changes: Any,
) -> Graph:  # fmt: skip
    """A loop whose one value has `state` elements in iteration t and `longer` in the next."""
    outputs, types = ("after",), {"state": kind(float32, state), "after": kind(float32, longer)}
    if conditional:
        outputs, types = ("on", "after"), {**types, "on": kind(boolean)}
    record = Foreign("engine", b"", ("state",), outputs)
    inside = Box.of(N, M, Dim("t", 0, 8), Dim("s", 0))
    made = region(FOREIGN, "state", " ".join(outputs), record)
    body = Graph("body", inside, types, ("state",), outputs, {}, (made,))
    limit = None if trips is None else as_size(trips)
    held = replace(LoopRegion(body, "t", limit, conditional, 1), **changes)
    around = {"go": kind(boolean), "x": ROW, "w": kind(float32, "m"),
              "start": kind(float32, start), "end": kind(float32, end)}  # fmt: skip
    given = "go start" if conditional else "start"
    return graph_of(around, "go x w start", "end", region(LOOP, given, "end", held))


@pytest.mark.parametrize(
    "graph",
    [
        loop(), loop(trips=0, end="1"), loop(trips=-3, end="1"), loop(trips=5, end="6"),
        loop(end="n"), loop(trips=None, end="1"), loop(conditional=True),
        loop(trips=5, end="1", conditional=True), loop(trips=None, end="1", conditional=True),
        loop(state="s", longer="s + 1"), loop(start="n", state="s", longer="2*s"),
        loop(start="n", state="m", longer="m", end="m"),
    ],
)  # fmt: skip
def test_carried_values_that_change_their_sizes(graph: Graph) -> None:
    verify(graph)


CARRIED = "carried value 0 is float32[{}] around it and float32[{}] inside"
LOOPS = {
    "starts with one more": (loop(start="2"), CARRIED.format(2, 1)),
    "starts with none": (loop(start="0"), CARRIED.format(0, 1)),
    "starts with more at all sizes": (
        loop(start="n + 10", state="m", longer="m"), CARRIED.format("n + 10", "m"),
    ),
    "goes on with one less": (loop(longer="t + 1"), CARRIED.format("t + 2", "t + 1")),
    "goes on with one more": (loop(longer="t + 3"), CARRIED.format("t + 2", "t + 3")),
    "goes on with more in all iterations": (
        loop(start="n", state="n", longer="t + 10"), CARRIED.format("n", "t + 10"),
    ),
    "ends with one more": (
        loop(end="m + 2"), "result 0 is float32[m + 2] around it and float32[max(m, 0) + 1] inside",
    ),
    "ends with more at all sizes": (
        loop(end="n + 11"),
        "result 0 is float32[n + 11] around it and float32[max(m, 0) + 1] inside",
    ),
    "no iteration, one more": (
        loop(trips=0, end="2"), "result 0 is float32[2] around it and float32[1] inside",
    ),
    "more carried values than inputs": (
        loop(carried=2), "its carried values or its counter do not fit",
    ),
    "a counter that is no dim of the body": (
        loop(counter="q"), "its carried values or its counter do not fit",
    ),
    "a counter that is known": (loop(counter="n"), "its carried values or its counter do not fit"),
    "a condition is missing": (
        loop().replace(
            nodes=(region(LOOP, "start", "end", loop(conditional=True).nodes[0].region),)
        ),
        "its first input is float32[1], expected bool[]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_carried_values_that_do_not_fit(name: str) -> None:
    graph, problem = LOOPS[name]
    assert refusal(graph) == f"node 'end' (loop): {problem}"


STACK = {"start": kind(float32), "initial": kind(int32, "m", "n"), "x": kind(float64, "n")}
STACKED = {"sum": kind(float32), "stack": kind(int32, "m", "n")}
INSIDE = {
    "state": kind(float32), "history": kind(int32, "m", "n"), "given": kind(float64, "n"),
    "after": kind(float32), "slice": kind(int32, "n"),
}  # fmt: skip


def stacking(around: Types | None = None, inside: Types | None = None) -> Graph:
    """One carried value, a stacked result that starts from an input and that the body reads."""
    types = {**INSIDE, **(inside or {})}
    record = Foreign("engine", b"", ("a", "b", "c"), ("d", "e"))
    made = region(FOREIGN, "state history given", "after slice", record)
    body = Graph(
        "body", Box.of(N, M, Dim("t", 0, 8)), types, ("state", "history", "given"),
        ("after", "slice"), {}, (made,),
    )  # fmt: skip
    scan = Scan(as_size("t"), as_size("m"), history=True, initial=True)
    held = LoopRegion(body, "t", as_size("m"), False, 1, (scan,))
    outside = {**STACK, **STACKED, "w": kind(float32, "m"), **(around or {})}
    made = region(LOOP, "start initial x", "sum stack", held)
    return graph_of(outside, "w start initial x", "sum stack", made)


@pytest.mark.parametrize("size", ["n + 1", "m + 10"])
def test_a_stacked_result_and_what_it_starts_from(size: str) -> None:
    verify(stacking())
    verify(stacking(inside={"slice": kind(int32, "m")}))
    verify(stacking({"initial": kind(int32, "n", "n")}))
    verify(stacking(inside={"history": kind(int32, "m", "m")}))
    verify(stacking(inside={"given": kind(float64, "m")}))
    for graph, problem in (
        (
            stacking(inside={"slice": kind(int32, size)}),
            f"stacked result 0 is int32[n] around it and int32[{size}] inside",
        ),
        (
            stacking({"initial": kind(int32, "m", size)}),
            f"start of a stacked result 0 is int32[m, {size}] around it and int32[m, n] inside",
        ),
        (
            stacking(inside={"history": kind(int32, "m", size)}),
            f"history 0 is int32[m, n] around it and int32[m, {size}] inside",
        ),
        (
            stacking(inside={"given": kind(float64, size)}),
            f"input 0 is float64[n] around it and float64[{size}] inside",
        ),
    ):
        assert refusal(graph) == f"node 'sum stack' (loop): {problem}"

"""Graphs with regions, built by hand, and what they mean in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import DType, boolean, float32, int64
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.regions import (
    BRANCH,
    CALL,
    LOOP,
    PART,
    SIZES,
    BranchRegion,
    CallRegion,
    LoopRegion,
    PartRegion,
    Scan,
    Sizes,
)
from anydim.lang.tree import TensorType
from anydim.runtime.lists import Listed
from anydim.sizes import Box, Dim, Guard, as_size


def kind(dtype: DType, *shape: Any) -> TensorType:
    return TensorType(dtype, tuple(map(as_size, shape)))


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Node:
    return Node(operator, tuple(inputs.split()), tuple(outputs.split()), attributes, outputs)


def region(operator: str, inputs: str, outputs: str, record: Any) -> Node:
    return node(operator, inputs, outputs, region=record)


N, M = Dim("n", 0, 9), Dim("m", 0, 9)


@dataclass(frozen=True)
class Example:
    """A graph, its meaning, and how to draw its inputs."""

    graph: Graph
    meaning: Callable[..., dict[str, np.ndarray]]
    draw: Callable[[np.random.Generator], dict[str, np.ndarray]]


def prefix() -> Example:
    """The first k elements, where k is data; k <= n is a constraint of the box."""
    box = Box.of(N, Dim("k", 0, 9), constraints=(as_size("n - k"),))
    graph = Graph(
        "prefix", box,
        {"x": kind(float32, "n"), "count": kind(int64), "y": kind(float32, "k")},
        ("x", "count"), ("y",), {},
        (
            region(SIZES, "count", "", Sizes(("k",))),
            node("slice", "x", "y", starts=(0,), ends=(as_size("k"),), axes=(0,)),
        ),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n = int(rng.integers(0, 10))
        x = rng.standard_normal(n).astype(np.float32)
        return {"x": x, "count": np.array(rng.integers(0, n + 1), np.int64)}

    return Example(graph, lambda x, count: {"y": x[:count]}, draw)


def chosen() -> Example:
    """x + x where the condition holds, else x after itself: sizes differ, m is told."""
    outer = Box.of(N, Dim("r", 0, 18))
    inner = Box.of(N)
    one = kind(float32, "n")
    then = Graph(
        "then", inner, {"x": one, "y": one}, ("x",), ("y",), {}, (node("add", "x x", "y"),)
    )
    twice = {"x": one, "y": kind(float32, "2*n")}
    otherwise = Graph(
        "otherwise", inner, twice, ("x",), ("y",), {}, (node("concat", "x x", "y", axis=0),)
    )
    types = {"c": kind(boolean), "x": one, "y": kind(float32, "r"), "z": kind(float32, "r")}
    nodes = (
        region(BRANCH, "c x", "y", BranchRegion(then, otherwise)),
        node("neg", "y", "z"),
    )
    graph = Graph("chosen", outer, types, ("c", "x"), ("z",), {}, nodes)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        x = rng.standard_normal(int(rng.integers(0, 10))).astype(np.float32)
        return {"c": np.array(rng.integers(0, 2), bool), "x": x}

    def meaning(c: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"z": -(x + x if c else np.concatenate([x, x]))}

    return Example(graph, meaning, draw)


def chosen_by_size() -> Example:
    """A branch on a relation between sizes."""
    one = kind(float32, "n")
    parts = [
        Graph(name, Box.of(N, M), {"x": one, "y": one}, ("x",), ("y",), {}, (node(how, "x", "y"),))
        for name, how in (("then", "neg"), ("otherwise", "abs"))
    ]
    condition = Guard(as_size("n"), "<", as_size("m"), "smaller")
    graph = Graph(
        "by_size", Box.of(N, M), {"x": one, "w": kind(float32, "m"), "y": one}, ("x", "w"), ("y",),
        {}, (region(BRANCH, "x", "y", BranchRegion(parts[0], parts[1], condition)),),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, m = rng.integers(0, 10, 2)
        return {name: rng.standard_normal(s).astype(np.float32) for name, s in (("x", n), ("w", m))}

    return Example(graph, lambda x, w: {"y": -x if len(x) < len(w) else abs(x)}, draw)


def growing() -> Example:
    """A carried value that gets x appended every iteration, and the running sums, stacked."""
    state = kind(float32, "s")
    body = Graph(
        "body", Box.of(N, M, Dim("t", 0, 8), Dim("s", 0)),
        {
            "state": state, "x": kind(float32, "n"), "longer": kind(float32, "s + n"),
            "total": kind(float32),
        },
        ("state", "x"), ("longer", "total"), {},
        (
            node("concat", "state x", "longer", axis=0),
            node("reduce_sum", "longer", "total", axes=(0,), keepdims=False),
        ),
    )  # fmt: skip
    types = {
        "start": kind(float32, 1), "x": kind(float32, "n"), "w": kind(float32, "m"),
        "end": kind(float32, "e"), "sums": kind(float32, "m"),
    }  # fmt: skip
    loop = LoopRegion(body, "t", as_size("m"), False, 1, (Scan(as_size("t"), as_size("m")),))
    graph = Graph(
        "growing", Box.of(N, M, Dim("e", 0)), types, ("start", "x", "w"), ("end", "sums"), {},
        (region(LOOP, "start x", "end sums", loop),),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, m = rng.integers(0, 10, 2)
        sizes = (("start", 1), ("x", n), ("w", m))
        return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes}

    def meaning(start: np.ndarray, x: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        sums = [start.sum() + x.sum() * (iteration + 1) for iteration in range(len(w))]
        end = np.concatenate([start, *[x] * len(w)])
        return {"end": end, "sums": np.array(sums, np.float32)}

    return Example(graph, meaning, draw)


def until() -> Example:
    """Doubles a number until it passes a limit; every value on the way, as many as iterations."""
    one = kind(float32)
    body = Graph(
        "body", Box.of(Dim("t", 0)),
        {"v": one, "limit": one, "w": one, "on": kind(boolean), "two": one},
        ("v", "limit"), ("on", "w", "v"), {"two": Constant(np.array(2, np.float32))},
        (node("mul", "v two", "w"), node("less", "w limit", "on")),
    )  # fmt: skip
    types = {
        "go": kind(boolean), "v": one, "limit": one, "w": one, "seen": kind(float32, "iterations"),
        "y": kind(float32, "iterations"),
    }  # fmt: skip
    loop = LoopRegion(body, "t", None, True, 1, (Scan(as_size("t")),))
    graph = Graph(
        "until", Box.of(Dim("iterations", 0)), types, ("go", "v", "limit"), ("w", "y"), {},
        (region(LOOP, "go v limit", "w seen", loop), node("neg", "seen", "y")),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "go": np.array(rng.random() < 0.8), "v": np.array(1 + rng.random(), np.float32),
            "limit": np.array(rng.random() * 100, np.float32),
        }  # fmt: skip

    def meaning(go: np.ndarray, v: np.ndarray, limit: np.ndarray) -> dict[str, np.ndarray]:
        seen = []
        while go:
            seen.append(v)
            v = v * np.float32(2)
            go = v < limit
        return {"w": v, "y": -np.array(seen, np.float32)}

    return Example(graph, meaning, draw)


def looking_back() -> Example:
    """y[t] = x[t] + y[t - 1], backwards: the body reads the history of its stacked result."""
    row = kind(float32, "m")
    types = {
        "history": kind(float32, "n", "m"), "x": kind(float32, "n", "m"),
        "now": kind(float32, 1, "m"), "before": kind(float32, 1, "m"), "y": row,
        "sum": kind(float32, 1, "m"),
    }  # fmt: skip
    last, at = as_size("n - 1"), as_size("n - 1 - t")
    before = as_size("min(n - t, n - 1)")
    body = Graph(
        "body", Box.of(N, M, Dim("t", 0, 8), constraints=(last - as_size("t"),)), types,
        ("history", "x"), ("y",), {},
        (
            node("slice", "x", "now", starts=(at,), ends=(at + 1,), axes=(0,)),
            node("slice", "history", "before", starts=(before,), ends=(before + 1,), axes=(0,)),
            node("add", "now before", "sum"),
            node("reshape", "sum", "y", shape=(as_size("m"),)),
        ),
    )  # fmt: skip
    loop = LoopRegion(body, "t", as_size("n"), False, 0, (Scan(at, as_size("n"), True, True),))
    outer = {"x": types["x"], "start": types["x"], "y": types["x"]}
    graph = Graph(
        "looking_back", Box.of(N, M), outer, ("start", "x"), ("y",), {},
        (region(LOOP, "start x", "y", loop),),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        shape = tuple(rng.integers(0, 10, 2))
        return {name: rng.standard_normal(shape).astype(np.float32) for name in ("start", "x")}

    def meaning(start: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        y = start.copy()
        for t in range(len(x) - 1, -1, -1):
            y[t] = x[t] + y[min(t + 1, len(x) - 1)]
        return {"y": y}

    return Example(graph, meaning, draw)


def updated() -> Example:
    """Doubles the parts of a tensor that rows of a table name, in order; parts may overlap."""
    start, k = Dim("start", 0, 9), Dim("k", 0, 9)
    types = {
        "whole": kind(float32, "m"), "rows": kind(int64, "n", 2), "old": kind(float32, "k"),
        "new": kind(float32, "k"), "y": kind(float32, "k"),
    }  # fmt: skip
    inside = (as_size("m - start - k"), as_size("n - 1 - t"))
    body = Graph(
        "body", Box.of(N, M, Dim("t", 0, 8), start, k, constraints=inside), types,
        ("whole", "rows"), ("y",), {},
        (
            region(SIZES, "rows", "", Sizes(("start", "k"), as_size("t"))),
            region(PART, "whole", "old", PartRegion(as_size("start"))),
            node("add", "old old", "new"),
            region(PART, "new", "y", PartRegion(as_size(0))),
        ),
    )  # fmt: skip
    scan = Scan(as_size("start"), as_size("m"), history=True, initial=True, joined=True)
    loop = LoopRegion(body, "t", as_size("n"), False, 0, (scan,))
    outer = {"pool": types["whole"], "rows": types["rows"], "y": types["whole"]}
    graph = Graph(
        "updated", Box.of(N, M), outer, ("pool", "rows"), ("y",), {},
        (region(LOOP, "pool rows", "y", loop),),
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, m = rng.integers(0, 10, 2)
        starts = rng.integers(0, m + 1, n)
        rows = np.stack([starts, rng.integers(0, m + 1 - starts)], axis=1)
        return {"pool": rng.standard_normal(m).astype(np.float32), "rows": rows}

    def meaning(pool: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        y = pool.copy()
        for first, count in rows.tolist():
            y[first : first + count] *= 2
        return {"y": y}

    return Example(graph, meaning, draw)


def called() -> Example:
    """One function called with two sizes; its dim is its own."""
    body = Graph(
        "double", Box.of(Dim("f.k", 0)), {"a": kind(float32, "f.k"), "b": kind(float32, "f.k")},
        ("a",), ("b",), {}, (node("add", "a a", "b"),),
    )  # fmt: skip
    types = {name: kind(float32, size) for name, size in zip("xwyv", "nmnm")}
    nodes = (region(CALL, "x", "y", CallRegion(body)), region(CALL, "w", "v", CallRegion(body)))
    graph = Graph("called", Box.of(N, M), types, ("x", "w"), ("y", "v"), {}, nodes)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, m = rng.integers(0, 10, 2)
        return {name: rng.standard_normal(s).astype(np.float32) for name, s in (("x", n), ("w", m))}

    return Example(graph, lambda x, w: {"y": x + x, "v": w + w}, draw)


def listed() -> Example:
    """A list of matrices, negated, as a list."""
    box = Box.of(Dim("total", 0), Dim("count", 0))
    types = {
        "xs.elements": kind(float32, "total"), "xs.shapes": kind(int64, "count", 2),
        "ys.elements": kind(float32, "total"), "ys.shapes": kind(int64, "count", 2),
    }  # fmt: skip
    graph = Graph(
        "listed", box, types, ("xs.elements", "xs.shapes"), ("ys.elements", "ys.shapes"), {},
        (
            node("neg", "xs.elements", "ys.elements"),
            node("identity", "xs.shapes", "ys.shapes"),
        ),
        (), {"xs": Listed("xs.elements", "xs.shapes"), "ys": Listed("ys.elements", "ys.shapes")},
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        count = int(rng.integers(0, 4))
        arrays = [
            rng.standard_normal(tuple(rng.integers(0, 4, 2))).astype(np.float32)
            for _ in range(count)
        ]
        return {"xs": arrays}

    return Example(graph, lambda xs: {"ys": [-x for x in xs]}, draw)


EXAMPLES = {
    make.__name__: make
    for make in (
        prefix, chosen, chosen_by_size, growing, until, looking_back, updated, called,
        listed
    )
}  # fmt: skip

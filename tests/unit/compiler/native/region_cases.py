"""More graphs with regions for tests of programs, with what they mean in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.graph.regions import (
    BRANCH,
    CALL,
    LOOP,
    SIZES,
    BranchRegion,
    CallRegion,
    LoopRegion,
    Scan,
    Sizes,
)
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.graph.region_graphs import Example, kind, node, region

B, T, N = Dim("b", 0, 5), Dim("T", 0, 12), Dim("n", 0, 9)
TURN = Dim("t", 0, 12)
ACCUMULATORS = as_size("T")


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def recurrent() -> Example:
    """h = tanh(x[t] + h @ r); every h is stacked and carried: made right in the stack."""
    h, matrix = kind(float32, "b", 3), Constant(normal(np.random.default_rng(5), 3, 3) / 2)
    body = Graph(
        "step", Box.of(B, T, TURN),
        {"h": h, "x": kind(float32, "T", "b", 3), "r": kind(float32, 3, 3), "m": h,
         "row": kind(float32, 1, "b", 3), "now": h, "s": h, "next": h},
        ("h", "x"), ("next", "next"), {"r": matrix},
        (
            node("slice", "x", "row", starts=(as_size("t"),), ends=(as_size("t + 1"),), axes=(0,)),
            node("reshape", "row", "now", shape=(as_size("b"), as_size(3))),
            node("matmul", "h r", "m"), node("add", "m now", "s"), node("tanh", "s", "next"),
        ),
    )  # fmt: skip
    body = body.replace(box=body.box.also(constraints=(as_size("T - 1 - t"),)))
    loop = LoopRegion(body, "t", ACCUMULATORS, False, 1, (Scan(as_size("t"), ACCUMULATORS),))
    types = {"h0": h, "x": kind(float32, "T", "b", 3), "last": h, "all": kind(float32, "T", "b", 3)}
    graph = Graph("recurrent", Box.of(B, T), types, ("h0", "x"), ("last", "all"), {},
                  (region(LOOP, "h0 x", "last all", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        b, t = rng.integers(0, 6), rng.integers(0, 13)
        return {"h0": normal(rng, b, 3), "x": normal(rng, t, b, 3)}

    def meaning(h0: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        states, state = [], h0
        for row in x:
            state = np.tanh(row + state @ matrix.array)
            states.append(state)
        return {"last": state, "all": np.array(states, np.float32).reshape(x.shape)}

    return Example(graph, meaning, draw)


def fibonacci() -> Example:
    """Two carried values change places; one result of the body is its input."""
    row = kind(float32, "n")
    body = Graph("swap", Box.of(N, TURN), {"a": row, "b": row, "c": row}, ("a", "b"), ("b", "c"),
                 {}, (node("add", "a b", "c"),))  # fmt: skip
    loop = LoopRegion(body, "t", ACCUMULATORS, False, 2)
    types = {"a": row, "b": row, "k": kind(float32, "T"), "x": row, "y": row}
    graph = Graph("fibonacci", Box.of(N, T), types, ("a", "b", "k"), ("x", "y"), {},
                  (region(LOOP, "a b", "x y", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, t = rng.integers(0, 10), rng.integers(0, 13)
        return {"a": normal(rng, n), "b": normal(rng, n), "k": normal(rng, t)}

    def meaning(a: np.ndarray, b: np.ndarray, k: np.ndarray) -> dict[str, np.ndarray]:
        for _ in k:
            a, b = b, a + b
        return {"x": a, "y": b}

    return Example(graph, meaning, draw)


def reversed_and_sparse() -> Example:
    """Slices from the last to the first; and every second one of a larger stack, else 0."""
    row = kind(float32, "n")
    body = Graph(
        "body", Box.of(N, T, TURN), {"a": row, "b": row, "two": kind(float32)}, ("a",),
        ("b", "b", "b"), {"two": Constant(np.array(2, np.float32))}, (node("mul", "a two", "b"),),
    )  # fmt: skip
    scans = (Scan(as_size("T - 1 - t"), ACCUMULATORS), Scan(as_size("2*t"), as_size("2*T + 1")))
    loop = LoopRegion(body, "t", ACCUMULATORS, False, 1, scans)
    types = {"a": row, "k": kind(float32, "T"), "z": row, "down": kind(float32, "T", "n"),
             "wide": kind(float32, "2*T + 1", "n")}  # fmt: skip
    graph = Graph("reversed", Box.of(N, T), types, ("a", "k"), ("z", "down", "wide"), {},
                  (region(LOOP, "a", "z down wide", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, t = rng.integers(0, 10), rng.integers(0, 13)
        return {"a": normal(rng, n), "k": normal(rng, t)}

    def meaning(a: np.ndarray, k: np.ndarray) -> dict[str, np.ndarray]:
        down = np.zeros((len(k), len(a)), np.float32)
        wide = np.zeros((2 * len(k) + 1, len(a)), np.float32)
        for turn in range(len(k)):
            a = a * 2
            down[len(k) - 1 - turn] = wide[2 * turn] = a
        return {"z": a, "down": down, "wide": wide}

    return Example(graph, meaning, draw)


def nested() -> Example:
    """sums[i] = x * (0 + 1 + ... + i) by a loop in a loop whose trips are the outer turn."""
    row = kind(float32, "n")
    inner = Graph("inner", Box.of(N, Dim("i", 0, 12), Dim("j", 0, 12)),
                  {"s": row, "x": row, "f": row, "w": kind(int64), "g": kind(float32), "y": row},
                  ("s", "x"), ("y",), {},
                  (node("size_tensor", "", "w", values=(as_size("j + 1"),), scalar=True),
                   node("cast", "w", "g", to="float32"), node("mul", "x g", "f"),
                   node("add", "s f", "y")))  # fmt: skip
    outer = Graph("outer", Box.of(N, Dim("i", 0, 12)), {"x": row, "zero": row, "sum": row}, ("x",),
                  ("sum",), {},
                  (node("sub", "x x", "zero"),
                   region(LOOP, "zero x", "sum",
                          LoopRegion(inner, "j", as_size("i"), False, 1))))  # fmt: skip
    loop = LoopRegion(outer, "i", ACCUMULATORS, False, 0, (Scan(as_size("i"), ACCUMULATORS),))
    types = {"x": row, "k": kind(float32, "T"), "sums": kind(float32, "T", "n")}
    graph = Graph("nested", Box.of(N, T), types, ("x", "k"), ("sums",), {},
                  (region(LOOP, "x", "sums", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": normal(rng, rng.integers(0, 10)), "k": normal(rng, rng.integers(0, 13))}

    def meaning(x: np.ndarray, k: np.ndarray) -> dict[str, np.ndarray]:
        sums = [x * (turn * (turn + 1) // 2) for turn in range(len(k))]
        return {"sums": np.array(sums, np.float32).reshape(len(k), len(x))}

    return Example(graph, meaning, draw)


def ragged() -> Example:
    """Slices whose size only data tells, the same in every turn; the stack's length is known."""
    body = Graph(
        "body", Box.of(N, T, TURN, Dim("w", 0, 9)),
        {"x": kind(float32, "n"), "w.of": kind(int64), "y": kind(float32, "w")}, ("x", "w.of"),
        ("y",), {},
        (region(SIZES, "w.of", "", Sizes(("w",))),
         node("slice", "x", "y", starts=(0,), ends=(as_size("w"),), axes=(0,))),
    )  # fmt: skip
    body = body.replace(box=body.box.also(constraints=(as_size("n - w"),)))
    loop = LoopRegion(body, "t", ACCUMULATORS, False, 0, (Scan(as_size("t"), ACCUMULATORS),))
    types = {"x": kind(float32, "n"), "k": kind(float32, "T"), "w.of": kind(int64),
             "y": kind(float32, "T", "u")}  # fmt: skip
    graph = Graph("ragged", Box.of(N, T, Dim("u", 0, 9)), types, ("x", "k", "w.of"), ("y",), {},
                  (region(LOOP, "x w.of", "y", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n = int(rng.integers(0, 10))
        return {"x": normal(rng, n), "k": normal(rng, rng.integers(0, 13)),
                "w.of": np.array(rng.integers(0, n + 1))}  # fmt: skip

    def meaning(**given: np.ndarray) -> dict[str, np.ndarray]:
        width = int(given["w.of"]) if len(given["k"]) else 0
        return {"y": np.tile(given["x"][:width], (len(given["k"]), 1))}

    return Example(graph, meaning, draw)


def branch_in_loop() -> Example:
    """In turns where x is small a function doubles it, in others a constant is taken."""
    one = kind(float32)
    twice = Graph("twice", Box(), {"a": one, "b": one}, ("a",), ("b",), {},
                  (node("add", "a a", "b"),))  # fmt: skip
    then = Graph("then", Box(), {"x": one, "y": one}, ("x",), ("y",), {},
                 (region(CALL, "x", "y", CallRegion(twice)),))  # fmt: skip
    other = Graph("other", Box(), {"x": one, "c": one}, ("x",), ("c",),
                  {"c": Constant(np.array(0.25, np.float32))})  # fmt: skip
    body = Graph("body", Box.of(TURN), {"x": one, "top": one, "small": kind(boolean), "y": one},
                 ("x", "top"), ("y", "y"), {},
                 (node("less", "x top", "small"),
                  region(BRANCH, "small x", "y", BranchRegion(then, other))))  # fmt: skip
    loop = LoopRegion(body, "t", ACCUMULATORS, False, 1, (Scan(as_size("t"), ACCUMULATORS),))
    types = {"x": one, "top": one, "k": kind(float32, "T"), "z": one, "all": kind(float32, "T")}
    graph = Graph("branches", Box.of(T), types, ("x", "top", "k"), ("z", "all"), {},
                  (region(LOOP, "x top", "z all", loop),))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": np.array(rng.random(), np.float32), "top": np.array(4, np.float32),
                "k": normal(rng, rng.integers(0, 13))}  # fmt: skip

    def meaning(x: np.ndarray, top: np.ndarray, k: np.ndarray) -> dict[str, np.ndarray]:
        seen = []
        for _ in k:
            x = x + x if x < top else np.float32(0.25)
            seen.append(x)
        return {"z": x, "all": np.array(seen, np.float32)}

    return Example(graph, meaning, draw)


def passed_through() -> Example:
    """Results that are inputs, constants and one value twice, out of a branch and a call."""
    row = kind(float32, "n")
    body = Graph("body", Box.of(N), {"a": row, "b": row, "c": kind(float32, 2)}, ("a", "b"),
                 ("b", "a", "c", "a"), {"c": Constant(np.array([1, 2], np.float32))})  # fmt: skip
    types = {"a": row, "b": row, "p": row, "q": row, "r": kind(float32, 2), "s": row, "t": row,
             "u": row}  # fmt: skip
    graph = Graph("passed", Box.of(N), types, ("a", "b"), ("p", "q", "r", "s", "t", "u"), {},
                  (region(CALL, "a b", "p q r s", CallRegion(body)), node("neg", "p", "t"),
                   node("identity", "t", "u")))  # fmt: skip

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n = rng.integers(0, 10)
        return {"a": normal(rng, n), "b": normal(rng, n)}

    def meaning(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        c = np.array([1, 2], np.float32)
        return {"p": b, "q": a, "r": c, "s": a, "t": -b, "u": -b}

    return Example(graph, meaning, draw)


def large_results() -> Example:
    """Results large enough to be handed over without a copy."""
    body = Graph("body", Box.of(Dim("k", 0, 9)), {"x": kind(float32, "k", 20000),
                 "y": kind(float32, "k", 20000)}, ("x",), ("y",), {},
                 (node("neg", "x", "y"),))  # fmt: skip
    types = {"x": kind(float32, "n", 20000), "y": kind(float32, "n", 20000),
             "z": kind(float32, "n", 20000)}  # fmt: skip
    graph = Graph(
        "large",
        Box.of(N),
        types,
        ("x",),
        ("y", "z"),
        {},
        (region(CALL, "x", "y", CallRegion(body)), region(CALL, "y", "z", CallRegion(body))),
    )

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": normal(rng, rng.integers(0, 4), 20000)}

    return Example(graph, lambda x: {"y": -x, "z": x}, draw)


CASES: dict[str, Callable[[], Example]] = {
    make.__name__: make
    for make in (
        recurrent, fibonacci, reversed_and_sparse, nested, ragged, branch_in_loop, passed_through,
        large_results,
    )
}  # fmt: skip


def drawn(example: Example, count: int, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """Inputs and what the graph means there."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        inputs = example.draw(rng)
        yield inputs, example.meaning(**inputs)

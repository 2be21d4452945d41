"""Promise: what data decides and does not fit is an error that says where, what came and what to
do; the model works on afterwards."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.base.dtypes import DType, boolean, float32, int64
from anydim.base.errors import DimError, GraphError, InputError, OutOfMemoryError
from anydim.compiler.graph.nodes import Constant, Graph, Node
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
from anydim.runtime import context
from anydim.runtime.region import RegionExecutable
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.compiler.graph.region_graphs import kind

N, T = Dim("n", 0, 9), Dim("T", 0, 12)
ROW = kind(float32, "n")


def step(operator: str, inputs: str, outputs: str, **attributes: Any) -> Node:
    source = f"/{operator.title()}"
    return Node(operator, tuple(inputs.split()), tuple(outputs.split()), attributes, source)


def floats(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def refused(model: Model, error: type[Exception], *parts: str, **inputs: Any) -> None:
    """The error has all parts, and nothing of the call is left behind."""
    with pytest.raises(error) as caught:
        model(**inputs)
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    executable = model.executable
    assert isinstance(executable, RegionExecutable)
    assert executable.leaked == 0
    assert all(frame.block[context.COUNT] == 0 for frame in executable._frames.free())


def prefix(dtype: DType = int64, guards: tuple[Guard, ...] = ()) -> Model:
    box = Box.of(N, Dim("k", 1, 7), constraints=(as_size("n - k"),))
    types = {"x": ROW, "y": ROW, "count": kind(dtype), "z": kind(float32, "k")}
    nodes = (
        step("neg", "x", "y"),
        step(SIZES, "count", "", region=Sizes(("k",))),
        step("slice", "y", "z", starts=(0,), ends=(as_size("k"),), axes=(0,)),
    )
    graph = Graph("prefix", box, types, ("x", "count"), ("z",), {}, nodes, guards)
    return ad.compile(graph)


@pytest.mark.parametrize(
    ("value", "side", "bound"),
    [(0, "below", 1), (-1, "below", 1), (-(2**63), "below", 1), (8, "above", 7),
     (2**63 - 1, "above", 7)],
)  # fmt: skip
def test_a_found_size_outside_its_bounds(value: int, side: str, bound: int) -> None:
    model = prefix()
    parts = ("/Sizes", f"dim 'k' is {value}, {side} its bound {bound}", "declared k=1..7")
    refused(model, DimError, *parts, x=floats(9), count=np.int64(value))
    np.testing.assert_array_equal(model(x=floats(9), count=np.int64(3))["z"], -floats(3))


def test_a_found_size_that_breaks_a_constraint() -> None:
    model = prefix()
    refused(
        model, DimError, "n - k >= 0 does not hold at k = 5, n = 4", x=floats(4), count=np.int64(5)
    )


def test_a_guard_on_a_found_size() -> None:
    model = prefix(guards=(Guard(as_size("k % 2"), "==", as_size(0), "pairs only"),))
    assert model(x=floats(4), count=np.int64(2))["z"].shape == (2,)
    refused(model, DimError, "do not fit at k = 3", "pairs only", x=floats(4), count=np.int64(3))


def test_inputs_are_checked_before_anything_runs() -> None:
    model = prefix()
    parts = ("input 'x' of prefix", "dim 'n' is 10, above its bound 9")
    refused(model, DimError, *parts, x=floats(10), count=np.int64(99))


def test_a_result_of_another_size_than_declared() -> None:
    """A branch whose arms make different sizes, where the declared one is known."""
    arms = []
    for name, end in (("short", "n//2"), ("long", "n")):
        types = {"x": ROW, "y": kind(float32, end)}
        made = step("slice", "x", "y", starts=(0,), ends=(as_size(end),), axes=(0,))
        arms.append(Graph(name, Box.of(N), types, ("x",), ("y",), {}, (made,)))
    types = {"c": kind(boolean), "x": ROW, "y": ROW}
    graph = Graph("g", Box.of(N), types, ("c", "x"), ("y",), {},
                  (step(BRANCH, "c x", "y", region=BranchRegion(*arms)),))  # fmt: skip
    model = ad.compile(graph)
    assert model(c=np.bool_(True), x=floats(0))["y"].shape == (0,)
    assert model(c=np.bool_(False), x=floats(4))["y"].shape == (4,)
    parts = ("result 'y' of /Branch", "axis 0 is 2", "dim 'n' is 4")
    refused(model, DimError, *parts, c=np.bool_(True), x=floats(4))


def test_a_told_size_outside_its_bounds() -> None:
    double = Graph("double", Box.of(Dim("k", 0)),
                   {"a": kind(float32, "k"), "b": kind(float32, "2*k")}, ("a",), ("b",), {},
                   (step("concat", "a a", "b", axis=0),))  # fmt: skip
    graph = Graph("g", Box.of(N, Dim("r", 0, 10)), {"x": ROW, "y": kind(float32, "r")}, ("x",),
                  ("y",), {}, (step(CALL, "x", "y", region=CallRegion(double)),))  # fmt: skip
    model = ad.compile(graph)
    assert model(x=floats(5))["y"].shape == (10,)
    parts = ("result 'y' of /Call", "dim 'r' is 12, above its bound 10")
    refused(model, DimError, *parts, x=floats(6))


def test_an_index_that_leaves_its_axis_in_a_loop() -> None:
    body = Graph("body", Box.of(N, Dim("t", 0, 12)),
                 {"x": ROW, "at": kind(int64), "y": kind(float32)}, ("x", "at"), ("y",), {},
                 (step("gather", "x at", "y", axis=0),))  # fmt: skip
    loop = LoopRegion(body, "t", as_size("T"), False, 0, (Scan(as_size("t")),))
    types = {"x": ROW, "at": kind(int64), "k": kind(float32, "T"), "y": kind(float32, "T")}
    graph = Graph("g", Box.of(N, T), types, ("x", "at", "k"), ("y",), {},
                  (step(LOOP, "x at", "y", region=loop),))  # fmt: skip
    model = ad.compile(graph)
    np.testing.assert_array_equal(model(x=floats(4), at=np.int64(-1), k=floats(3))["y"], [3] * 3)
    assert model(x=floats(4), at=np.int64(9), k=floats(0))["y"].shape == (0,)
    refused(model, InputError, "/Gather", "index 9 is outside", x=floats(4), at=np.int64(9),
            k=floats(2))  # fmt: skip


def stacking(scan: Scan) -> Model:
    """Slices x[:t] of another size in every iteration."""
    start = step("slice", "x", "y", starts=(0,), ends=(as_size("t"),), axes=(0,))
    body = Graph("body", Box.of(N, T, Dim("t", 0, 12), constraints=(as_size("n - t"),)),
                 {"x": ROW, "y": kind(float32, "t")}, ("x",), ("y",), {}, (start,))  # fmt: skip
    types = {"x": ROW, "k": kind(float32, "T"), "y": kind(float32, "e", "w")}
    graph = Graph(
        "g",
        Box.of(N, T, Dim("e", 0), Dim("w", 0)),
        types,
        ("x", "k"),
        ("y",),
        {},
        (step(LOOP, "x", "y", region=LoopRegion(body, "t", as_size("T"), False, 0, (scan,))),),
    )
    return ad.compile(graph)


@pytest.mark.parametrize("extent", [None, as_size("T")])
def test_slices_of_different_shapes_do_not_stack(extent: Any) -> None:
    model = stacking(Scan(as_size("t"), extent))
    assert model(x=floats(4), k=floats(1))["y"].shape == (1, 0)
    parts = ("/Loop", "an iteration produced a slice of shape [1]", "slices of shape [0]")
    refused(model, InputError, *parts, x=floats(4), k=floats(2))


def placing(position: str, extent: str) -> Model:
    body = Graph("body", Box.of(N, T, Dim("t", 0, 12)), {"x": ROW, "y": ROW}, ("x",), ("y",), {},
                 (step("neg", "x", "y"),))  # fmt: skip
    scan = Scan(as_size(position), as_size(extent))
    types = {"x": ROW, "k": kind(float32, "T"), "y": kind(float32, extent, "n")}
    loop = LoopRegion(body, "t", as_size("T"), False, 0, (scan,))
    graph = Graph("g", Box.of(N, T), types, ("x", "k"), ("y",), {},
                  (step(LOOP, "x", "y", region=loop),))  # fmt: skip
    return ad.compile(graph)


@pytest.mark.parametrize(
    ("position", "extent", "iterations", "found"),
    [("t", "3", 4, "slice 3"), ("2 - t", "3", 4, "slice -1"), ("5*t", "T", 2, "slice 5"),
     ("t + 1", "T", 1, "slice 1")],
)  # fmt: skip
def test_a_slice_outside_its_stack(position: str, extent: str, iterations: int, found: str) -> None:
    model = placing(position, extent)
    refused(model, InputError, "/Loop", found, "outside", x=floats(2), k=floats(iterations))
    assert model(x=floats(2), k=floats(0))["y"].shape[1] == 2


def test_a_body_that_cannot_take_the_sizes_that_come() -> None:
    """The state doubles in every iteration, past the bound that the body declares."""
    body = Graph("body", Box.of(Dim("t", 0, 12), Dim("s", 0, 20)),
                 {"h": kind(float32, "s"), "g": kind(float32, "2*s")}, ("h",), ("g",), {},
                 (step("concat", "h h", "g", axis=0),))  # fmt: skip
    types = {"h": ROW, "k": kind(float32, "T"), "y": kind(float32, "e")}
    loop = LoopRegion(body, "t", as_size("T"), False, 1)
    graph = Graph("g", Box.of(N, T, Dim("e", 0)), types, ("h", "k"), ("y",), {},
                  (step(LOOP, "h", "y", region=loop),))  # fmt: skip
    model = ad.compile(graph)
    assert model(h=floats(5), k=floats(3))["y"].shape == (40,)
    parts = ("input 'h' of body", "dim 's' is 40, above its bound 20")
    refused(model, DimError, *parts, h=floats(5), k=floats(4))


def test_no_memory_is_an_error_and_not_the_end() -> None:
    model = placing("t", "T")
    model(x=floats(2), k=floats(2))
    (frame,) = model.executable._frames.free()  # type: ignore[union-attr]
    system = frame.block[context.MALLOC]
    model.trim()
    nothing = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(lambda bytes: None)
    frame.block[context.MALLOC] = ctypes.cast(nothing, ctypes.c_void_p).value or 0
    parts = ("/Loop: not enough memory at n = 2, T = 2 for 64 bytes of intermediate values",)
    refused(model, OutOfMemoryError, *parts, x=floats(2), k=floats(2))
    frame.block[context.MALLOC] = system
    assert model(x=floats(2), k=floats(2))["y"].shape == (2, 2)


def test_sizes_that_do_not_fit_64_bits() -> None:
    box = Box.of(Dim("a", 0), Dim("b", 0))
    types = {"v": kind(int64, 2), "one": kind(float32), "y": kind(float32, "a", "b")}
    nodes = (
        step(SIZES, "v", "", region=Sizes(("a", "b"))),
        step("expand", "one", "y", shape=(as_size("a"), as_size("b"))),
    )
    one = {"one": Constant(np.array(1, np.float32))}
    model = ad.compile(Graph("g", box, types, ("v",), ("y",), one, nodes))
    assert model(v=np.array([2, 3]))["y"].shape == (2, 3)
    refused(model, DimError, "does not fit 64 bits", v=np.array([2**40, 2**40]))
    refused(model, OutOfMemoryError, "not enough memory at a = 1099511627776, b = 65536",
            v=np.array([2**40, 2**16]))  # fmt: skip


def test_a_size_that_nothing_tells() -> None:
    body = Graph("body", Box.of(Dim("q", 0), N), {"x": ROW, "y": kind(float32, "q")}, ("x",),
                 ("y",), {}, (step("expand", "x", "y", shape=(as_size("q"),)),))  # fmt: skip
    graph = Graph("g", Box.of(N, Dim("r", 0)), {"x": ROW, "y": kind(float32, "r")}, ("x",), ("y",),
                  {}, (step(CALL, "x", "y", region=CallRegion(body)),))  # fmt: skip
    with pytest.raises(GraphError, match="'q'"):
        ad.compile(graph)


def test_a_plan_refuses_sizes_outside_the_box() -> None:
    model = prefix()
    with pytest.raises(DimError, match="dim 'k' is 8, above its bound 7"):
        model.plan(n=9, k=8)
    with pytest.raises(DimError, match="'n' has no size"):
        model.plan(k=3)
    assert model.plan(n=9).sizes == {"n": 9, "k": 7}
    assert model.plan(n=3).sizes == {"n": 3, "k": 3}

"""Promise: shapes, bounds and counts that are inputs of a model do what onnxruntime does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import anydim as ad
from anydim.base.errors import InputError
from tests.models.building import compare, graph, model, node

Rng = np.random.Generator


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def reshape(rng: Rng) -> dict[str, np.ndarray]:
    a, b = rng.integers(1, 9, 2)
    shapes = [(0, 0, 4), (-1, 2, b), (0, -1, 2), (a, b * 2, -1), (2, 2, a * b), (1, -1, 1)]
    return {"x": floats(rng, a, b, 4), "shape": ints(*shapes[rng.integers(len(shapes))])}


def slice_(rng: Rng) -> dict[str, np.ndarray]:
    far = [-(1 << 62), -5, -1, 0, 1, 3, 7, 1 << 62]
    steps = [-3, -2, -1, 1, 2, 5]
    x = floats(rng, *rng.integers(0, 9, 2))
    return {"x": x, "starts": rng.choice(far, 2), "ends": rng.choice(far, 2),
            "steps": rng.choice(steps, 2)}  # fmt: skip


def plain_slice(rng: Rng) -> dict[str, np.ndarray]:
    inputs = slice_(rng)
    del inputs["steps"]
    return inputs


def expand(rng: Rng) -> dict[str, np.ndarray]:
    n = int(rng.integers(0, 9))
    shape = rng.choice([1, n], 3)
    shape[1] = rng.choice([1, 5])
    return {"x": floats(rng, int(rng.choice([1, n])) if shape[2] != 1 else n), "shape": shape}


def tile(rng: Rng) -> dict[str, np.ndarray]:
    return {"x": floats(rng, *rng.integers(1, 6, 2)), "repeats": rng.integers(0, 4, 2)}


def pad(rng: Rng) -> dict[str, np.ndarray]:
    return {"x": floats(rng, *rng.integers(4, 9, 2)), "pads": rng.integers(-2, 4, 4)}


def integers(rng: Rng) -> dict[str, np.ndarray]:
    start, limit = rng.integers(-9, 20, 2)
    delta = rng.choice([-3, -1, 1, 2])
    return {"a": np.array(start), "b": np.array(limit), "c": np.array(delta)}


def reals(rng: Rng) -> dict[str, np.ndarray]:
    start, limit = rng.integers(-8, 16, 2) / 4
    delta = rng.choice([-0.5, 0.25, 1])
    named = {"a": start, "b": limit, "c": delta}
    return {name: np.array(value, np.float32) for name, value in named.items()}


def parts(rng: Rng) -> dict[str, np.ndarray]:
    sizes = rng.integers(0, 5, 3)
    return {"x": floats(rng, int(sizes.sum()), 2), "sizes": sizes}


def filled(rng: Rng) -> dict[str, np.ndarray]:
    return {"shape": rng.integers(0, 6, 3)}


def places(rng: Rng) -> dict[str, np.ndarray]:
    depth = int(rng.integers(1, 9))
    return {"i": rng.integers(-depth, depth, int(rng.integers(0, 9))), "depth": np.array(depth)}


def marks(rng: Rng) -> dict[str, np.ndarray]:
    n, m = rng.integers(1, 12, 2)
    return {"x": floats(rng, n, m), "keep": rng.random(n) < rng.choice([0.0, 0.5, 1.0])}


def repeated(rng: Rng) -> dict[str, np.ndarray]:
    return {"x": rng.integers(0, 6, int(rng.integers(1, 30)))}


def best(rng: Rng) -> dict[str, np.ndarray]:
    n, m = rng.integers(1, 20, 2)
    return {"x": floats(rng, n, m), "k": rng.integers(0, m + 1, 1)}


Case = tuple[list[str], list[onnx.NodeProto], list[str], Callable[[Rng], dict[str, np.ndarray]]]
CASES: dict[str, Case] = {
    "reshape": (["x f[n, m, 4]", "shape l[3]"], [node("y = Reshape(x, shape)")],
                ["y f[a, b, c]"], reshape),
    "slice with steps": (
        ["x f[n, m]", "starts l[2]", "ends l[2]", "steps l[2]"],
        [node("y = Slice(x, starts, ends, axes, steps)")], ["y f[a, b]"], slice_),
    "slice": (["x f[n, m]", "starts l[2]", "ends l[2]"],
              [node("y = Slice(x, starts, ends)")], ["y f[a, b]"], plain_slice),
    "expand": (["x f[n]", "shape l[3]"], [node("y = Expand(x, shape)")], ["y f[a, b, c]"], expand),
    "tile": (["x f[n, m]", "repeats l[2]"], [node("y = Tile(x, repeats)")], ["y f[a, b]"], tile),
    "pad": (["x f[n, m]", "pads l[4]"], [node("y = Pad(x, pads)")], ["y f[a, b]"], pad),
    "range": (["a l[]", "b l[]", "c l[]"], [node("y = Range(a, b, c)")], ["y l[k]"], integers),
    "real range": (["a f[]", "b f[]", "c f[]"], [node("y = Range(a, b, c)")], ["y f[k]"], reals),
    "split": (["x f[n, 2]", "sizes l[3]"], [node("y, z, w = Split(x, sizes)", axis=0)],
              ["y f[a, 2]", "z f[b, 2]", "w f[c, 2]"], parts),
    "constant of shape": (["shape l[3]"], [node("y = ConstantOfShape(shape)")],
                          ["y f[a, b, c]"], filled),
    "one hot": (["i l[n]", "depth l[]"], [node("y = OneHot(i, depth, values)")],
                ["y f[n, k]"], places),
    "compress": (["x f[n, m]", "keep b[n]"], [node("y = Compress(x, keep)", axis=0)],
                 ["y f[a, m]"], marks),
    "compress flat": (["x f[n, m]", "keep b[n]"], [node("y = Compress(x, keep)")],
                      ["y f[a]"], marks),
    "nonzero": (["x f[n, m]", "keep b[n]"],
                [node("at = NonZero(keep)"), node("flat = Squeeze(at, first)"),
                 node("y = Gather(x, flat)"), node("count = Shape(y)")],
                ["y f[a, m]", "count l[2]"], marks),
    "unique": (["x l[n]"], [node("y, at, group, counts = Unique(x)")],
               ["y l[a]", "at l[a]", "group l[n]", "counts l[a]"], repeated),
    "top k": (["x f[n, m]", "k l[1]"], [node("y, at = TopK(x, k)", largest=0)],
              ["y f[n, k]", "at l[n, k]"], best),
}  # fmt: skip
HELD = {"axes": ints(1, -2), "values": np.array([0, 1], np.float32), "first": ints(0)}


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name: str) -> None:
    inputs, nodes, outputs, draw = CASES[name]
    used = {value for n in nodes for value in n.input}
    held = {key: array for key, array in HELD.items() if key in used}
    body = graph(name.replace(" ", "_"), inputs, nodes, outputs, held)
    named = {dim.dim_param for value in body.input for dim in value.type.tensor_type.shape.dim}
    compare(model(body), {name: ad.Dim(0, 512) for name in named - {""}}, draw)


def test_a_size_below_zero_names_the_node() -> None:
    body = graph("filled", ["shape l[2]"], [node("y = ConstantOfShape(shape)")], ["y f[a, b]"])
    run = ad.compile(model(body))
    with pytest.raises(InputError, match="/y"):
        run(shape=ints(3, -1))


def test_a_reshape_that_loses_elements_is_an_error_of_the_call() -> None:
    nodes = [node("y = Reshape(x, shape)")]
    run = ad.compile(model(graph("lost", ["x f[n]", "shape l[2]"], nodes, ["y f[a, b]"])))
    with pytest.raises(InputError, match="reshape"):
        run(x=np.ones(6, np.float32), shape=ints(2, 2))
    assert run(x=np.ones(6, np.float32), shape=ints(2, -1))["y"].shape == (2, 3)

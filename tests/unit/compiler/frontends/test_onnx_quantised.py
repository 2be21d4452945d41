"""What the importer makes of files that quantise around every operator."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.compiler.frontends.onnx import import_model
from tests.unit.compiler.frontends.models import compare, model, node

MOVED = [
    node("a = DequantizeLinear(x, s, z)"), node("b = Transpose(a)", perm=[0, 2, 3, 1]),
    node("c = MaxPool(b)", kernel_shape=[2, 1], pads=[1, 0, 0, 0]),
    node("d = Reshape(c, t)"),
]  # fmt: skip
BYTES = {"x": np.arange(2 * 5 * 7 * 3).astype(np.uint8).reshape(2, 5, 7, 3)}


@pytest.mark.parametrize(("scale", "zero", "kept"), [(0.3, 9, True), (0.3, 8, False)])
def test_bytes_that_only_move_stay_bytes(scale: float, zero: int, kept: bool) -> None:
    """With the same scale and zero point, whether they have the same names or not."""
    constants = {
        "s": np.float32(0.3), "z": np.uint8(9), "u": np.float32(scale), "v": np.uint8(zero),
        "t": np.array([0, -1], np.int64),
    }  # fmt: skip
    nodes = [*MOVED, node("y = QuantizeLinear(d, u, v)")]
    proto = model(nodes, ["x u[2, 5, m, 3]"], ["y"], 19, **constants)
    graph = import_model(proto)
    operators = {each.operator for each in graph.nodes}
    assert operators.isdisjoint({"quantize", "dequantize"}) == kept
    compare(proto, BYTES, graph)


def test_numbers_that_overflow_are_not_taken_for_bytes() -> None:
    """100 steps of 1000 are infinite in float16, and the largest byte again."""
    constants = {"s": np.float16(1000), "z": np.uint8(0)}
    nodes = [node("a = DequantizeLinear(x, s, z)"), node("y = QuantizeLinear(a, s, z)")]
    graph = import_model(model(nodes, ["x u[n]"], ["y"], 19, **constants))
    assert "quantize" in {each.operator for each in graph.nodes}


def test_parts_of_a_join_are_quantised_before() -> None:
    constants = {"s": np.float32(0.3), "t": np.float32(0.2), "z": np.uint8(9)}
    nodes = [
        node("a = DequantizeLinear(x, s, z)"), node("b = DequantizeLinear(w, t, z)"),
        node("c = Concat(a, b)", axis=1), node("y = QuantizeLinear(c, t, z)"),
    ]  # fmt: skip
    proto = model(nodes, ["x u[2, m]", "w u[2, 3]"], ["y"], 19, **constants)
    graph = import_model(proto)
    (joined,) = (each for each in graph.nodes if each.operator == "concat")
    assert {graph.types[name].dtype.name for name in joined.given} == {"uint8"}
    x = np.arange(0, 26).astype(np.uint8).reshape(2, 13)
    compare(proto, {"x": x, "w": x[:, :3]}, graph)

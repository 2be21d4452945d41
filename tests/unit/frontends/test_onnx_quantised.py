"""What the importer makes of files that quantise around every operator."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.frontends.onnx import import_model
from tests.unit.frontends.models import compare, model, node

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

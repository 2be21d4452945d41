"""Weights of a few bits: products with constants become MatMulNBits."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

DOMAIN = "com.microsoft"


def narrowed(model: onnx.ModelProto, bits: int, block: int = 32) -> onnx.ModelProto:
    """The model with weights of 4 or 8 bits, symmetric, a scale for every `block` along k."""
    graph, nodes = model.graph, []
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            nodes.append(node)
            continue
        x, name = node.input
        array = numpy_helper.to_array(weights[name])
        fields, scales = _quantised(array, bits, block)
        graph.initializer.remove(weights[name])
        graph.initializer.append(numpy_helper.from_array(fields, f"{name}.fields"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}.scales"))
        k, n = array.shape
        inputs = [x, f"{name}.fields", f"{name}.scales"]
        made = helper.make_node(
            "MatMulNBits", inputs, node.output, domain=DOMAIN, K=k, N=n, bits=bits,
            block_size=block,
        )  # fmt: skip
        nodes.append(made)
    del graph.node[:]
    graph.node.extend(nodes)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return model


def _quantised(array: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Fields [n, blocks, bytes] of weights [k, n], and their scales."""
    k, n = array.shape
    blocks, middle = -(-k // block), 1 << (bits - 1)
    padded = np.zeros((n, blocks * block), np.float32)
    padded[:, :k] = array.T
    parts = padded.reshape(n, blocks, block)
    scales = np.maximum(np.abs(parts).max(2), 1e-12) / (middle - 1)
    fields = np.rint(parts / scales[..., None]) + middle
    whole = fields.clip(0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:
        whole = whole[..., ::2] | whole[..., 1::2] << 4
    return whole, scales.astype(np.float32).reshape(-1)

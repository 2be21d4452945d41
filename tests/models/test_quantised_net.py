"""A convolutional net quantised by QuantizeLinear and DequantizeLinear, beside onnxruntime.

Each layer may be one step off where rounding meets a tie; what is compared is quantised too.
"""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

SAMPLES = 50
STEPS = 2  # a step of one layer is at most about one of the next here


class Net:
    """Collects the nodes and constants of a quantised net."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.chance = numpy.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: object) -> str:
        self.constants.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], result: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def quantised(self, x: str, name: str, scale: float, zero: int) -> str:
        """x through its quantised form, which is called `name`_q."""
        s = self.constant(f"{name}_s", numpy.float32(scale))
        z = self.constant(f"{name}_z", self.kind(zero))
        self.node("QuantizeLinear", [x, s, z], f"{name}_q")
        return self.node("DequantizeLinear", [f"{name}_q", s, z], name)

    def weights(self, name: str, *shape: int) -> str:
        """Weights with a scale for each output channel."""
        w = self.constant(f"{name}_w", self.chance.integers(-127, 128, shape).astype(numpy.int8))
        scales = self.chance.uniform(0.001, 0.006, shape[0]).astype(numpy.float32)
        s = self.constant(f"{name}_ws", scales)
        z = self.constant(f"{name}_wz", numpy.zeros(shape[0], numpy.int8))
        return self.node("DequantizeLinear", [w, s, z], name, axis=0)

    def model(self) -> onnx.ModelProto:
        zero = 128 if self.kind is numpy.uint8 else 3
        x = self.quantised("x", "a", 0.02, zero)
        x = self.node("Conv", [x, self.weights("w0", 8, 3, 3, 3)], "c0", pads=[1] * 4)
        x = self.quantised(self.node("Relu", [x], "r0"), "b", 0.03, zero)
        y = self.node("Conv", [x, self.weights("w1", 8, 8, 3, 3)], "c1", pads=[1] * 4)
        y = self.quantised(y, "c", 0.05, zero)
        x = self.quantised(self.node("Add", [x, y], "sum"), "d", 0.06, zero)
        x = self.node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        x = self.quantised(x, "p", 0.06, zero)
        x = self.node("Conv", [x, self.weights("w2", 20, 8, 1, 1)], "c2", strides=[2, 2])
        x = self.quantised(x, "e", 0.05, zero)
        x = self.node("Flatten", [self.node("GlobalAveragePool", [x], "mean")], "flat")
        x = self.quantised(x, "f", 0.02, zero)
        x = self.node("Gemm", [x, self.weights("w3", 10, 20)], "g", transB=1)
        self.quantised(x, "y", 0.02, zero)
        number = TensorProto.UINT8 if self.kind is numpy.uint8 else TensorProto.INT8
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
            [helper.make_tensor_value_info(name, number, None) for name in ("b_q", "d_q", "y_q")],
            self.constants,
        )  # fmt: skip
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


@pytest.mark.parametrize("kind", [numpy.uint8, numpy.int8], ids=["uint8", "int8"])
def test_random_sizes(kind: type) -> None:
    proto = Net(kind).model()
    model = ad.compile(proto)
    assert model.explain(details=True).count("an int8 product") >= 4
    options = onnxruntime.SessionOptions()  # what it makes of patterns is up to 3 steps off
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    chance = numpy.random.default_rng(1)
    different = total = 0
    for sample in range(SAMPLES):
        n, h, w = (int(v) for v in chance.integers(1, (4, 40, 40)))
        x = chance.standard_normal((n, 3, h, w)).astype(numpy.float32)
        for name, expected in zip(("b_q", "d_q", "y_q"), peer.run(None, {"x": x})):
            off = abs(model(x=x)[name].astype(int) - expected.astype(int))
            assert off.max(initial=0) <= STEPS, (sample, name, n, h, w)
            different, total = different + int((off > 0).sum()), total + off.size
    assert different <= total / 100

"""Files of onnxruntime's quantiser, and what onnxruntime saves of them: right at every batch.

Scales come from random calibration. A byte is one step off where a float sum meets a tie, and what
follows carries it on: in the small net to at most 2 % of the largest result, in the architectures,
which have up to 200 layers with random weights, to at most 5 %. onnxruntime's own levels of
optimisation are as far apart (densenet121, 3 %).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

pytest.importorskip("onnxruntime")

import onnxruntime

from bench.light import NAMES, light_model
from bench.quantising import FORMS, optimised, quantised, random_images, session_options

SIDE = 14
NEAR, FAR = 0.02, 0.05


def small_net() -> onnx.ModelProto:
    """Plain, grouped and depthwise convolutions, pools, a join, a sum and a dense layer."""
    chance = numpy.random.default_rng(6)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def weights(*shape: int) -> str:
        array = chance.standard_normal(shape, numpy.float32) / numpy.prod(shape[1:]) ** 0.5
        constants.append(numpy_helper.from_array(array.astype(numpy.float32), f"w{len(constants)}"))
        return constants[-1].name

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def convolution(x: str, *shape: int, **attributes: Any) -> str:
        y = node("Conv", x, weights(*shape), weights(shape[0]), **attributes)
        return node("Relu", y)

    x = convolution("x", 16, 3, 3, 3, strides=[2, 2], pads=[1] * 4)
    pooled = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = convolution(pooled, 16, 4, 1, 1, group=4)
    y = convolution(y, 16, 1, 3, 3, group=16, pads=[1] * 4)
    y = node("Add", convolution(y, 16, 16, 1, 1), pooled)
    y = node("Concat", y, node("AveragePool", pooled, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    y = node("Flatten", node("GlobalAveragePool", node("Sigmoid", y)))
    y = node("Gemm", y, weights(10, 32), weights(10), transB=1)
    kinds = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["batch", 3, SIDE, SIDE]), (y, ["batch", 10]))
    ]
    graph = helper.make_graph(nodes, "small", kinds[:1], kinds[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def check(path: Path, batches: tuple[int, ...], side: int, tolerance: float) -> ad.Model:
    model = ad.compile(str(path), dims={"batch": ad.Dim(1, 16)}, threads=1)
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    for batch in batches:
        (feed,) = random_images(model.inputs[0].name, 1, batch, side)
        (found,), (expected,) = model(**feed).values(), peer.run(None, feed)
        assert found.shape == expected.shape
        assert numpy.abs(found - expected).max() <= tolerance * numpy.abs(expected).max()
    return model


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("form", FORMS)
def test_a_small_net(form: str, tmp_path: Path) -> None:
    path = quantised(small_net(), form, tmp_path, random_images("x", 2, 2, SIDE))
    for file in (path, optimised(path)):
        model = check(file, (3, 1), SIDE, NEAR)
        assert model.explain(details=True).count("an int8 product") >= 3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_an_architecture(name: str, form: str, tmp_path: Path) -> None:
    source = light_model(name)
    constants = {tensor.name for tensor in source.graph.initializer}
    entry = next(value.name for value in source.graph.input if value.name not in constants)
    path = quantised(source, form, tmp_path, random_images(entry, 2))
    for file in (path, optimised(path)):
        check(file, (2, 1, 3), 224, FAR)

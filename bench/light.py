"""The light architectures that ship with onnx, with a free batch and weights that mean something.

The files hold ConstantOfShape nodes where weights were, so all channels are alike and results say
little. Here every one becomes random weights of a usual scale, always the same ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy
import onnx
import onnx.backend.test
from onnx import numpy_helper

NAMES = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
_FOLDER = Path(os.path.dirname(onnx.backend.test.__file__), "data", "light")
_RANGES = {1: (0.5, 1.5), 2: (-0.2, 0.2), 3: (-0.2, 0.2), 4: (0.5, 1.5)}  # of BatchNormalization


def light_model(name: str, sizes: tuple[str | int, ...] = ("batch",)) -> onnx.ModelProto:
    """An architecture whose first dimensions are `sizes` (names or numbers), with random weights.

    Its result is what goes into the last Softmax, which would hide differences.
    """
    model = onnx.load(_FOLDER / f"light_{name}.onnx")
    _weights(model)
    _without_softmax(model)
    _free(model, sizes)
    return model


def _without_softmax(model: onnx.ModelProto) -> None:
    graph = model.graph
    if graph.node[-1].op_type == "Softmax":
        graph.output[0].name = graph.node[-1].input[0]
        del graph.node[-1]


def _weights(model: onnx.ModelProto) -> None:
    """Random initializers in place of the ConstantOfShape nodes."""
    graph = model.graph
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    users = {name: (node, place) for node in graph.node for place, name in enumerate(node.input)}
    random = numpy.random.default_rng(0)
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(size) for size in known[node.input[0]])
        user, place = users[node.output[0]]
        array = _drawn(random, user, place, shape)
        graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)


def _drawn(
    random: numpy.random.Generator, user: onnx.NodeProto, place: int, shape: tuple[int, ...]
) -> numpy.ndarray:
    if user.op_type == "BatchNormalization":
        return random.uniform(*_RANGES[place], shape).astype(numpy.float32)
    if len(shape) > 1:  # what keeps the size of values from layer to layer
        transposed = any(a.name == "transB" and a.i for a in user.attribute)
        inner = shape[0] if len(shape) == 2 and not transposed else numpy.prod(shape[1:])
        scale = (2.0 / max(1, inner)) ** 0.5
        return (random.standard_normal(shape) * scale).astype(numpy.float32)
    return random.uniform(0.5, 1.0, shape).astype(numpy.float32)


def _free(model: onnx.ModelProto, sizes: tuple[str | int, ...]) -> None:
    """Sizes for dimensions of the input; a Reshape keeps the batch it is given."""
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in known:
            for dimension, size in zip(value.type.tensor_type.shape.dim, sizes):
                _name(dimension, size)
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in graph.initializer:
        if tensor.name in targets:
            shape = numpy_helper.to_array(tensor).copy()
            shape[0] = 0 if shape[0] == 1 else shape[0]
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))


def _name(dimension: onnx.TensorShapeProto.Dimension, size: str | int) -> None:
    if isinstance(size, str):
        dimension.dim_param = size
    else:
        dimension.dim_value = size

"""A writer of ONNX graphs that names nodes and values the way a torch export does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 18


class GraphWriter:
    """Collects nodes and initialisers in order; `model` iterations them into a checked file.

    A node of scope `/encoder/layer.0` and operator `MatMul` is `/encoder/layer.0/MatMul`, the
    second one `/encoder/layer.0/MatMul_1`, and its value `<node>_output_0`.
    """

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._used: Counter[str] = Counter()

    def node(
        self, scope: str, operator: str, *inputs: str, output: str | None = None, **attributes: Any
    ) -> str:
        """Append a node and return the name of its one output."""
        name = self._fresh(f"{scope}/{operator}")
        output = output or f"{name}_output_0"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        return output

    def constant(self, scope: str, value: Any, dtype: Any) -> str:
        """Append a Constant node holding a small array or scalar."""
        tensor = numpy_helper.from_array(np.array(value, dtype))
        return self.node(scope, "Constant", value=tensor)

    def weight(self, name: str, values: np.ndarray) -> str:
        """Append an initialiser; its name is the parameter's name."""
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def dimension(self, scope: str, value: str, axis: int) -> str:
        """The size of one axis as a vector of one element: Shape, Gather, Unsqueeze."""
        shape = self.node(scope, "Shape", value)
        size = self.node(scope, "Gather", shape, self.constant(scope, axis, np.int64), axis=0)
        return self.node(scope, "Unsqueeze", size, self.constant(scope, [0], np.int64))

    def model(
        self,
        name: str,
        inputs: dict[str, tuple[int, list[Any]]],
        outputs: dict[str, tuple[int, list[Any]]],
    ) -> onnx.ModelProto:
        """The whole model, checked; inputs and outputs are name -> (element type, shape)."""
        opsets = [helper.make_opsetid("", OPSET)]
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(key, *kind) for key, kind in inputs.items()],
            [helper.make_tensor_value_info(key, *kind) for key, kind in outputs.items()],
            self._weights,
        )
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="anydim-examples",
        )
        onnx.checker.check_model(model)
        return model

    def _fresh(self, name: str) -> str:
        count = self._used[name]
        self._used[name] += 1
        return f"{name}_{count}" if count else name

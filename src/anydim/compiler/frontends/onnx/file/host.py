"""Parts of a model on strings as steps in numpy (`runtime/string_operators.py`).

The other operators come from onnx's reference evaluator.
"""

from __future__ import annotations

from typing import Any

import numpy

from anydim.compiler.frontends.onnx.file.schema import value_of
from anydim.compiler.frontends.onnx.file.tensors import read_tensor
from anydim.runtime.string_operators import HOST, HostNode, HostSteps, fill_vector


def steps_of(proto: Any, name: str) -> HostSteps | None:
    """The steps of a model; None if an operator has no row."""
    graph = proto.graph
    if any((node.domain, node.op_type) not in HOST for node in graph.node):
        return None
    return HostSteps(
        name, [value.name for value in graph.input], [value.name for value in graph.output],
        [_node(node) for node in graph.node],
        {tensor.name: _tensor(tensor).reshape(tuple(tensor.dims)) for tensor in graph.initializer},
    )  # fmt: skip


def _node(node: Any) -> HostNode:
    given = {attribute.name: value_of(attribute) for attribute in node.attribute}
    arrays = {name: _tensor(value) for name, value in given.items() if hasattr(value, "dims")}
    return HostNode(node.domain, node.op_type, tuple(node.input), node.output[0], given | arrays)


def _tensor(proto: Any) -> numpy.ndarray:
    if proto.string_data:
        return fill_vector([text.decode("utf-8", "replace") for text in proto.string_data])
    return read_tensor(proto, None, "an attribute")


def operators() -> list[type]:
    """The rows as classes for onnx's reference evaluator."""
    return [_operator(domain, name) for domain, name in HOST]


def _operator(domain: str, name: str) -> type:
    from onnx.reference.op_run import OpRun

    def run(self: Any, *inputs: Any, **_: Any) -> tuple[Any]:
        node = _node(self.onnx_node)
        return (HOST[node.domain, node.operator](node.attributes)(*inputs),)

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})

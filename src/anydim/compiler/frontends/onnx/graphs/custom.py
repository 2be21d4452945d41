"""Imports a node whose operator is a definition of the user."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.compiler.frontends.definition import call_definition
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import TensorType


def import_defined(
    names: Names, definition: Definition, label: str, call: OnnxNode
) -> Sequence[str]:
    """Add the node of a definition to the graph; Unsupported if it does not fit."""
    values = [held for held in call.inputs if isinstance(held, str)]
    if len(values) < len(call.inputs):
        raise Unsupported("an input that is missing or no tensor")
    if len(call.proto.output) > len(definition.results):
        raise Unsupported(f"{len(call.proto.output)} results, its definition has fewer")
    wanted = dict(zip(definition.results, call.outputs))
    emitter = names.emitter

    def result(name: str, kind: TensorType) -> str:
        value = wanted.get(name) or emitter.fresh(f"{label}/{name}")
        emitter.types[value] = kind
        return value

    frozen = FrozenMapping({key: freeze_value(value) for key, value in call.attributes.items()})
    types = [emitter.types[value] for value in values]
    try:
        node, group = call_definition(
            definition, values, types, frozen, emitter.box, result, call.source
        )
    except UserError as error:
        raise Unsupported(error.problem) from None
    emitter.guard(*group.guards)
    emitter.commit([node])
    return node.outputs

"""Imports a node whose operator is a definition of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.compiler.frontends.definition import called
from anydim.compiler.frontends.onnx.file.schema import bound, value_of
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.values.held import Held
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import TensorType


def add_defined(
    names: Names, definition: Definition, proto: Any, label: str, inputs: Sequence[Held | None]
) -> None:
    """Add the node of a definition to the graph; Unsupported if it does not fit."""
    values = [held for held in inputs if isinstance(held, str)]
    if len(values) < len(inputs):
        raise Unsupported("an input that is missing or no tensor")
    if len(proto.output) > len(definition.results):
        raise Unsupported(f"{len(proto.output)} results, its definition has fewer")
    attributes = {a.name: value_of(a) for a in bound(proto.attribute, names.attributes)}
    wanted = dict(zip(definition.results, proto.output))
    emitter = names.emitter

    def result(name: str, kind: TensorType) -> str:
        own = wanted.get(name, "")
        value = names.value_name(own) if own else emitter.fresh(f"{label}/{name}")
        emitter.types[value] = kind
        return value

    frozen = FrozenMapping({key: freeze_value(value) for key, value in attributes.items()})
    types = [emitter.types[value] for value in values]
    source = f"{names.model.name}: {label}"
    try:
        node, group = called(definition, values, types, frozen, emitter.box, result, source)
    except UserError as error:
        raise Unsupported(error.problem) from None
    emitter.guards += [guard for guard in group.guards if guard not in emitter.guards]
    emitter.commit([node])
    names.held.update((own, value) for own, value in zip(proto.output, node.outputs) if own)

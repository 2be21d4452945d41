"""Imports nodes whose operator the user defines, or the ONNX standard by other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.onnx_notation import NUMBERS
from anydim.compiler.frontends.definition import call_definition
from anydim.compiler.frontends.onnx.file.schema import bind_references
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.functions import Function, expand
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.values.bindings import Binding
from anydim.compiler.frontends.onnx.values.forms import proto_of
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


def import_body(names: Names, label: str, call: OnnxNode) -> list[Binding]:
    """The results of a node by the other operators that the standard defines it by."""
    schema = call.schema
    if not (schema.has_function or schema.has_context_dependent_function):
        raise Unsupported("not supported")
    given = list(call.inputs) + [None] * (len(call.proto.input) - len(call.inputs))
    types = [None if held is None else proto_of(names.emitter, held) for held in given]
    body = _body(resolve_references(call.proto, names.attributes), schema, names.opset, types)
    if body is None:
        raise Unsupported("not supported")
    function, attributes = body
    call.nodes.clear()
    whole = Function.of(function, names.opset)
    return expand(names, whole, attributes, label, call, strict=True)


def resolve_references(proto: Any, attributes: Mapping[str, Any]) -> Any:
    """A node whose references to attributes of the enclosing function are their values."""
    if not any(attribute.ref_attr_name for attribute in proto.attribute):
        return proto
    own = type(proto)()
    own.CopyFrom(proto)
    del own.attribute[:]
    own.attribute.extend(bind_references(proto.attribute, attributes))
    return own


def _body(
    proto: Any, schema: Any, opset: int, types: Sequence[TensorType | Any | None]
) -> tuple[Any, dict[str, Any]] | None:
    """The function by which the standard replaces a node, and its attributes; None if none.

    `types` are those of its inputs: of tensors, or as TypeProto.
    """
    import onnx

    function = onnx.FunctionProto()
    if schema.has_function:
        function.ParseFromString(_text(schema.name, schema.domain, schema.since_version, opset))
    else:
        kinds = [_type_proto(kind).SerializeToString() for kind in types]
        written = schema.get_context_dependent_function(proto.SerializeToString(), kinds)
        if not written:
            return None
        function.ParseFromString(written)
    given = {attribute.name: attribute for attribute in proto.attribute}
    for name, declared in schema.attributes.items():
        if name not in given and declared.default_value.type:
            given[name] = declared.default_value
    return function, given


@lru_cache(maxsize=256)
def _text(operator: str, domain: str, since: int, opset: int) -> bytes:
    import onnx

    schema: Any = onnx.defs.get_schema(operator, since, domain)
    version = max((v for v in schema.function_opset_versions if v <= opset), default=since)
    text = schema.get_function_with_opset_version(version)
    assert isinstance(text, bytes)
    return text


def _type_proto(kind: TensorType | Any | None) -> Any:
    import onnx

    proto = onnx.TypeProto()
    if kind is None:
        return proto
    if not isinstance(kind, TensorType):
        return kind
    proto.tensor_type.elem_type = NUMBERS[kind.dtype]
    proto.tensor_type.shape.SetInParent()
    for size in kind.shape:
        dim = proto.tensor_type.shape.dim.add()
        if size.constant is None:
            dim.dim_param = str(size)
        else:
            dim.dim_value = size.constant
    return proto
